"""What tests share: stores that fail, simulations of tables, the kernels written with NumPy."""
