"""MuJoCo models that come with the package, loaded by name."""
