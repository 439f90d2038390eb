"""The probe: the same fixed work again and again, so that it shows whether the machine itself has become slower."""
