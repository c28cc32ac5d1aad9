"""Run the hot loops: kernels in C++ and NumPy, canonical blocks, executors (threads, disk, Ray)."""
