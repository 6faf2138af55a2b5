"""The demo server: the OpenAI API, a page to play with, and a live picture of the engine, over one ``TextClient``.

Reused unchanged by stages 2 to 4. Read ``app``, then the road of a request: ``body`` → ``protocol`` →
``sampling`` → ``call`` → ``completions`` or ``chat`` → ``streaming``.

vLLM: ``vllm/entrypoints/openai/``.
"""
