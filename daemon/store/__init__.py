"""The store: models, migrations, one writer, and the questions asked of it."""
