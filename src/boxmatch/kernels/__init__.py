"""What kernels are made of: how they are compiled, bit lines and bit sets, pools, packing."""
