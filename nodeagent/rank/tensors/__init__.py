"""Operations on tensors without training: copy to host memory, pack, divide into boxes.

Begin with ``host_copy``.
"""
