"""Operations on tensors that know nothing of training: copy to host memory, pack, divide into boxes.

Begin with ``host_copy``.
"""
