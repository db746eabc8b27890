"""Point-cloud compression: an octree over cells of a fixed step, its kernels in OpenCL."""
