"""One module a file format: ``read(path)`` returns points, ``write(path, points)`` writes them."""
