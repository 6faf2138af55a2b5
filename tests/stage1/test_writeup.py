"""What the write-up shows of this stage, written anew and run: the offline script and the request with curl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client


def test_the_offline_script_runs_as_a_program() -> None:
    """Two prompts, temperature 0.8, top_p 0.95, printed side by side — in a process of its own, as a user would."""
    script = textwrap.dedent("""
        from stage1 import LLM, SamplingParams

        prompts = ["Hello, my name is", "The president of the United States is"]
        sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
        llm = LLM(max_model_len=256)
        for output in llm.generate(prompts, sampling_params):
            print(repr(output.prompt), "->", repr(output.outputs[0].text))
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # installed or not
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" -> ")[0] for line in lines] == [
        "'Hello, my name is'",
        "'The president of the United States is'",
    ]
    assert all(len(line.split(" -> ")[1]) > 10 for line in lines)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_request_with_curl() -> None:
    client = start_client(Settings.from_keywords(CONFIGS, {"max_model_len": 256}))
    body = {"model": client.model_name, "prompt": "The capital of France is", "max_tokens": 50, "temperature": 0.7}
    try:
        with serve_in_thread(client) as url:
            command = ["curl", "-sS", f"{url}/v1/completions", "-H", "Content-Type: application/json"]
            done = subprocess.run([*command, "-d", json.dumps(body)], capture_output=True, text=True, timeout=240)
    finally:
        client.shutdown()
    answer = json.loads(done.stdout)
    assert answer["object"] == "text_completion"
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["completion_tokens"] == 50 or answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["text"]
