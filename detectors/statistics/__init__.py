"""What tests are made of: noise, robust means, sketches, two samples. Pure functions over arrays."""
