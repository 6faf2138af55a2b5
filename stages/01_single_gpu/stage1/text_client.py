"""Text in, text out, over any engine client: what the server talks to.

Owns the streams of the requests in flight. Everything that turns text into tokens and back is done by the two
processors; everything that computes is behind the engine client.

vLLM: ``v1/engine/async_llm.py`` (stage 2's ``AsyncLLM`` is this with its own core).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from stage1.input_processor import Admission, InputProcessor
from stage1.interfaces import EngineClient, EngineDeadError
from stage1.output_processor import OutputProcessor, Processed
from stage1.outputs import RequestOutput
from stage1.params import SamplingParams
from stage1.records import StepStats


class TextClient:
    """The front end of one engine. Use it from one event loop.

    ``dead`` says why the engine has stopped, and is ``None`` while it works.
    """

    def __init__(self, client: EngineClient, inputs: InputProcessor, outputs: OutputProcessor, stage: int) -> None:
        source = inputs.source
        self.model_name: str = source.name
        self.root: str = source.root
        self.max_model_len: int = source.max_model_len
        self.max_logprobs = inputs.max_logprobs
        self.default_sampling: dict[str, Any] = dict(source.default_sampling)
        self.tokenizer = inputs.tokenizer
        self.inputs = inputs
        self.stage = stage
        self.dead: str | None = None
        self._client = client
        self._outputs = outputs
        self._streams: dict[str, asyncio.Queue[RequestOutput | EngineDeadError]] = {}
        self._pump_task: asyncio.Task[None] | None = None

    def generate(
        self, prompt: Any, params: SamplingParams, *, request_id: str, **options: Any
    ) -> AsyncIterator[RequestOutput]:
        """Check and tokenise ``prompt`` now (safe in another thread), and stream its outputs.

        ``options`` are those of ``InputProcessor.process``. Closing the iterator aborts the request.

        Raises:
            ValueError: at once, for anything that is wrong with the request.
            EngineDeadError: from the iterator, when the engine has died.
        """
        admission = self.inputs.process(prompt, params, request_id=request_id, strict_length=True, **options)
        return self._stream(admission)

    async def abort(self, request_id: str) -> None:
        """End a request, whose stream then ends with finish_reason ``abort``; an unknown id is ignored."""
        await self._hand_out(self._outputs.abort(request_id))

    async def stats(self) -> StepStats:
        """The engine's queues, usage and counters."""
        return await self._client.stats()

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method of the core between two steps and wait for its answer."""
        return await self._client.call(method, *args)

    def shutdown(self) -> None:
        """Stop the engine: requests in flight end with ``EngineDeadError``; a second call does nothing."""
        if self._pump_task is not None:
            self._pump_task.cancel()
        self._client.shutdown()
        self._die(EngineDeadError(self.dead or "the engine was shut down"))

    # --- below: streams ------------------------------------------------------------------------------

    async def _stream(self, admission: Admission) -> AsyncIterator[RequestOutput]:
        request_id = admission.request_id
        if self.dead is not None:
            raise EngineDeadError(self.dead)
        if self._pump_task is not None and self._pump_task.get_loop() is not asyncio.get_running_loop():
            raise RuntimeError("this engine serves another event loop: use one loop for all its requests")
        self._outputs.add(admission)  # refuses an id that is in use
        if self._pump_task is None:
            self._pump_task = asyncio.create_task(self._pump())
        stream = self._streams[request_id] = asyncio.Queue()
        finished = False
        try:
            for child in admission.children:
                await self._client.add_request(child)
            while not finished:
                output = await stream.get()
                if isinstance(output, EngineDeadError):
                    raise output
                finished = output.finished
                yield output
        finally:
            # The id was free from the request's end on: by now it may be somebody else's.
            if self._streams.get(request_id) is stream:
                del self._streams[request_id]
                if not finished:
                    # Cancelled or closed half-way: nobody reads the rest. Shielded, so that a second cancellation
                    # cannot keep the core from hearing of it.
                    await asyncio.shield(self.abort(request_id))

    async def _pump(self) -> None:
        """Hand each step's outputs to their streams, until the engine stops."""
        try:
            async for outputs in self._client.outputs():
                await self._hand_out(self._outputs.process(outputs))
        except EngineDeadError as error:
            self._die(error)

    def _die(self, error: EngineDeadError) -> None:
        """Tell everyone who waits for an output that none will come."""
        self.dead = str(error)
        self._outputs.fail_all(self.dead)
        for stream in self._streams.values():
            stream.put_nowait(error)

    async def _hand_out(self, processed: Processed) -> None:
        """Outputs to their streams, endings to the core."""
        for output in processed.outputs:
            if (stream := self._streams.get(output.request_id)) is not None:
                stream.put_nowait(output)
        if processed.aborts:
            await self._client.abort(processed.aborts)
