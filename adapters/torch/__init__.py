"""PyTorch: torchrun's environment, and what a PyTorch script imports."""
