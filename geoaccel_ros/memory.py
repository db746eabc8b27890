"""The C library's memory, kept for the next cloud."""

import ctypes

# <malloc.h>
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# glibc takes no more for the second.
_LARGEST = 32 << 20


def keep_freed_memory() -> None:
    """Ask glibc not to hand freed memory back to the system; elsewhere nothing happens.

    Arrays of megabytes live for one cloud. By default each is mapped anew, and its pages come one
    by one from the kernel at first touch: of a cloud of 123,000 points that took longer than all
    the arithmetic of reading it (9 ms against 1.5 on a virtual machine). What a process once needed
    it then keeps.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
