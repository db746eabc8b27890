"""OpenCL C sources, read as package resources by :mod:`geoaccel_ros.compression.device`."""
