"""The model: its shape, layers and weights, and the files they come from.

Owns everything between token ids and logits. Does not know requests, scheduling or sampling.

vLLM: ``vllm/model_executor/``.
"""
