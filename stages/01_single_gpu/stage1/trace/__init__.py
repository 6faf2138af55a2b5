"""The trace: one small event format from which pictures, invariants and timelines are made.

``events`` is the format; ``tracer`` and ``traced_kv`` write it from the scheduler's hooks and the KV manager's socket;
``sinks`` carry it to a file, a list or a live page; ``reader`` reads it back; ``invariants`` checks it; ``draw`` and
its neighbours turn it into pictures. The engine never reads its own trace.

vLLM has no counterpart; its nearest relatives are ``v1/metrics/`` and ``vllm/tracing.py``.
"""
