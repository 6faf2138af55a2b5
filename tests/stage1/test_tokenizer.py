"""Tokenizers: the embedded model's ids, vocabularies in GGUF files, folders, and bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stage1.config import ModelConfig
from stage1.model.source import resolve
from stage1.model.tokenizer import load_tokenizer

# Text -> ids, as transformers' own conversion of the file gives them.
IDS: dict[str, list[int]] = {
    "1, 2, 3, 4, 5,": [33, 28, 216, 34, 28, 216, 35, 28, 216, 36, 28, 216, 37, 28],
    "Hello, world!": [19556, 28, 905, 17],
    "beautiful": [1425, 44682],
    " beautiful": [3953],
    "described": [12390, 7199],
    " described": [3873],
    "happiness": [88, 38462],
    " happiness": [8906],
    "\U0001f999": [10813, 116, 243],
    " \U0001f999": [15107, 116, 243],
    "\U0001f600": [10813, 242, 218],
    "\U0001f44d\U0001f3fd": [10813, 235, 231, 10813, 233, 138],
    "\u010f": [143, 233],
    "\ufffd": [24211],
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Once upon a time, there was a": [6403, 1980, 253, 655, 28, 665, 436, 253],
    "def f(x):\n    return x + 1\n": [1604, 275, 24, 104, 727, 472, 1003, 1792, 1232, 216, 33, 198],
    "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}": [
        1710,
        365,
        591,
        2056,
        446,
        216,
        32,
        43,
        2056,
        2067,
        216,
        33,
        32,
        43,
        1232,
        27,
        89,
        25,
        1662,
        198,
        197,
        5422,
        4519,
        253,
        75,
        89,
        26695,
        198,
        109,
    ],
    "   leading": [256, 2899],
    "trailing   ": [4861, 4966, 333],
    "a  b   c    d": [81, 216, 278, 256, 265, 333, 287],
    "\n\n\n": [16506],
    "\t\t": [1656],
    "\r\n": [2738],
    "a\n\nb": [81, 198, 198, 82],
    "x = 3.14159": [104, 446, 216, 35, 30, 33, 36, 33, 37, 41],
    "2024-01-31": [34, 32, 34, 36, 29, 32, 33, 29, 35, 33],
    "1234567890": [33, 34, 35, 36, 37, 38, 39, 40, 41, 32],
    "$1,000.00": [20, 33, 28, 32, 32, 32, 30, 32, 32],
    "I'm you're we've they'll he'd it's": [57, 5248, 346, 2316, 392, 3543, 502, 3060, 384, 6737, 357, 506],
    "DON'T": [52, 2154, 23, 68],
    "na\xefve caf\xe9": [3546, 46494, 37366],
    "\xdcbergr\xf6\xdfe": [142, 246, 5799, 98, 7466, 34878, 85],
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440": [155, 249, 46879, 16464, 32547, 28, 41337, 7872, 9175],
    "\u4f60\u597d,\u4e16\u754c": [18645, 250, 48392, 138, 28, 7906, 240, 178, 239, 230],
    "\u3053\u3093\u306b\u3061\u306f": [7365, 237, 10391, 237, 41152, 7365, 111, 7365, 124],
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645": [
        21706,
        20602,
        44626,
        31462,
        10805,
        45726,
        22208,
        34966,
        22208,
        21706,
    ],
    "\u05e9\u05dc\u05d5\u05dd": [38229, 31838, 23970, 162, 247],
    "\u0928\u092e\u0938\u094d\u0924\u0947": [30658, 35090, 38770, 16525, 26293, 30581],
    "\ud55c\uad6d\uc5b4": [33085, 246, 181, 130, 251, 183, 240, 129],
    "e\u0301": [85, 151, 219],
    "\xa0nbsp\xa0": [15442, 94, 32093, 15442],
    "zero\u200bwidth": [13723, 321, 229, 6930],
    "<|im_start|>user\nhi<|im_end|>\n": [1, 4093, 198, 6004, 2, 198],
    "<|endoftext|>": [0],
    "<|im_start|>": [1],
    "https://example.org/a?b=c&d=e#f": [4687, 1742, 7434, 30, 2295, 31, 81, 47, 82, 45, 83, 22, 84, 45, 85, 19, 86],
    '{"a": [1, 2.5, null, true]}': [39428, 81, 1799, 933, 33, 28, 216, 34, 30, 37, 28, 10034, 28, 2629, 28852],
    "SELECT * FROM t WHERE id=42;": [23428, 1672, 18451, 252, 28531, 4492, 45, 36, 34, 43],
    "....": [5592],
    "---": [5583],
    "!!!???": [29646, 16693, 47],
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": [44843, 44843, 44843, 44843, 44843],
    "                 ": [40082],
    "abababababababababababababababababababab": [
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
        369,
    ],
    "\uff13\uff14\uff15": [8083, 237, 8083, 238, 8083, 239],
    "x\xb2": [104, 19133],
    "\u2167": [173, 223, 117],
    "a1b2c3": [81, 33, 82, 34, 83, 35],
    "1st 2nd 3rd": [33, 302, 216, 34, 268, 216, 35, 7212],
    "0x1F": [32, 104, 33, 54],
    "v1.2.3": [102, 33, 30, 34, 30, 35],
    " 7": [216, 39],
    "7 8": [39, 216, 40],
    "7\n8": [39, 198, 40],
    "a 7": [81, 216, 39],
    " \n 7": [3717, 216, 39],
    "\x00\x01": [190, 191],
    "": [],
    " ": [216],
    "'": [23],
    "''": [3816],
    "<0x0A>": [44, 32, 104, 32, 49, 46],
    "\u0120": [143, 250],
    "\u2581a": [11007, 219, 81],
}
# Here that conversion forgets that the model's tokenizer cuts digits off before everything else: it cuts two spaces
# before a digit in two, and halves the bytes of a fraction.
OUR_IDS = {"  7": [256, 39], "   7": [333, 39], "7  7": [39, 256, 39], "\xbd \xbc": [16738, 216, 28151]}


# --- the embedded model ---


@pytest.mark.parametrize("text", [*IDS, *OUR_IDS])
def test_ids_are_the_models_own(smollm_tokenizer: Any, text: str) -> None:
    assert smollm_tokenizer.encode(text) == (IDS | OUR_IDS)[text]


def test_facts_of_the_embedded_tokenizer(smollm_tokenizer: Any) -> None:
    assert len(smollm_tokenizer.encode("1, 2, 3, 4, 5,")) == 14
    assert smollm_tokenizer.encode("") == []
    assert (len(smollm_tokenizer), smollm_tokenizer.eos_token_id, smollm_tokenizer.bos_token_id) == (49152, 2, 1)
    assert smollm_tokenizer.encode("\U0001f999") == [10813, 116, 243]
    assert smollm_tokenizer.encode(" \U0001f999") == [15107, 116, 243]
    assert smollm_tokenizer.encode("\U0001f600") == [10813, 242, 218]
    assert len(smollm_tokenizer.encode("\U0001f44d\U0001f3fd")) == 6
    assert smollm_tokenizer.encode("\u010f") == [143, 233]
    assert smollm_tokenizer.encode("\ufffd") == [24211]
    assert smollm_tokenizer.decode([10813, 116]) == "\ufffd"
    assert smollm_tokenizer.decode([0, 1, 7042, 2, 3], skip_special_tokens=True) == " Paris"
    assert smollm_tokenizer.decode([1, 7042, 2]) == "<|im_start|> Paris<|im_end|>"


def test_the_chat_template_adds_the_system_turn(smollm_tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "What is 2+2?"}]
    text = smollm_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n")
    ids = smollm_tokenizer.encode(text, add_special_tokens=False)
    assert (len(ids), ids.count(1)) == (37, 3)
    own = [{"role": "system", "content": "Be brief."}, *messages]
    assert "SmolLM" not in smollm_tokenizer.apply_chat_template(own, tokenize=False)


# The model's vocabulary has no token for a few bytes: six control characters, and what begins planes 4 and up.
@given(text=st.text(st.characters(codec="utf-8", max_codepoint=0x3FFFF, exclude_characters="\4\6\x13\x14\x16\x1d")))
def test_text_comes_back(smollm_tokenizer: Any, text: str) -> None:
    assert smollm_tokenizer.decode(smollm_tokenizer.encode(text)) == text


def test_the_gguf_file_gives_the_same_tokenizer(smollm_tokenizer: Any) -> None:
    direct = load_tokenizer(resolve(ModelConfig(load_format="gguf")))
    assert [direct.encode(text) for text in IDS] == [smollm_tokenizer.encode(text) for text in IDS]
    assert direct.chat_template == smollm_tokenizer.chat_template
    assert direct.all_special_ids == smollm_tokenizer.all_special_ids


# --- folders ---


def model_folder(path: Path, vocab_size: int = 300, tokenizer: str = "{}", settings: Any = None) -> ModelConfig:
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": vocab_size, "hidden_size": 16}
    config |= {"intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(tokenizer)
    if settings is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return ModelConfig(model=str(path))


def small_tokenizer() -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    return str(tokenizer.to_str())


def test_a_folder_with_a_plain_fast_tokenizer(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "chat_template": "{{ 1 + 1 }}"}
    tokenizer = load_tokenizer(resolve(model_folder(tmp_path, tokenizer=small_tokenizer(), settings=settings)))
    assert tokenizer.decode(tokenizer.encode("1234 a")) == "1234 a"
    assert tokenizer.bos_token_id == 256
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "2"


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    source = resolve(model_folder(tmp_path, vocab_size=200, tokenizer=small_tokenizer(), settings=settings))
    with pytest.raises(ValueError, match=r"has 257 tokens; .* knows 200.*--tokenizer"):
        load_tokenizer(source)


@pytest.mark.parametrize("settings", [{"tokenizer_class": "PreTrainedTokenizerFast"}, None, [1]])
def test_an_unreadable_tokenizer_is_one_line(tmp_path: Path, settings: Any) -> None:
    with pytest.raises(ValueError, match=r"is unreadable .*--tokenizer") as caught:
        load_tokenizer(resolve(model_folder(tmp_path, settings=settings)))
    assert "\n" not in str(caught.value)


def test_code_of_a_repository_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    settings = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    config = model_folder(tmp_path, tokenizer=small_tokenizer(), settings=settings)
    with pytest.raises(ValueError, match="is unreadable"):
        load_tokenizer(resolve(config))
    assert not (tmp_path / "ran").exists()
