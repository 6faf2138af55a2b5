"""The stage's Triton kernels, one file an operation, each with the plain formula that it computes.

Owns what runs inside a launch. Does not know requests, scheduling or the model's layers: a launcher takes tensors.

vLLM: ``csrc/``, ``vllm/attention/ops/``.
"""
