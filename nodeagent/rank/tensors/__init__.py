"""Tensors: cut, packed, and copied to host memory."""
