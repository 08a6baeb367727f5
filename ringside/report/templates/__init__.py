"""Templates; a package, so that they are installed with the code that needs them."""
