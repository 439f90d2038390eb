import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cyclewatch_sglang
from cyclewatch.collectors.records import ServerIdentity
from cyclewatch.collectors.server_info import SERVER_ARGUMENTS, parse_server_info

FIXTURES = Path(__file__).parents[2] / "fixtures/engine"
URL = "http://127.0.0.1:30000"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


def parse(reply: object) -> ServerIdentity:
    return parse_server_info("t", URL, json.dumps(reply).encode())


@pytest.mark.parametrize(
    ("file", "version", "graphs"),
    [
        (
            "server_info-0.5.23.json",
            "0.5.23",
            {
                "cuda_graph_config.decode.backend": "disabled",
                "cuda_graph_config.decode.bs": "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,18,20,22,24,26,28,30,32",
                "cuda_graph_config.prefill.backend": "disabled",
                "cuda_graph_config.prefill.max_bs": 4096,
            },
        ),
        (
            "get_server_info-0.5.4.json",
            "0.5.4",
            {"cuda_graph_max_bs": 8, "cuda_graph_bs": "1,2,4,8", "disable_cuda_graph": True},
        ),
    ],
)
def test_real_answer(file: str, version: str, graphs: dict[str, object]) -> None:
    identity = parse_server_info("t", URL, (FIXTURES / file).read_bytes())
    assert (identity.target, identity.url) == ("t", URL)
    assert (identity.version, identity.model) == (version, "tiny-model")
    expected: dict[str, object] = {
        "host": "127.0.0.1",
        "port": identity.arguments["port"],
        "model_path": "tiny-model",
        "served_model_name": "tiny-model",
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "nnodes": 1,
        "node_rank": 0,
        "device": "cpu",
        "dtype": "auto",
        "kv_cache_dtype": "auto",
        "context_length": 2048,
        "page_size": 1,
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "moe_runner_backend": "auto",
        "moe_a2a_backend": "none",
        "disable_overlap_schedule": False,
        "disable_cuda_graph": False,
        "enable_torch_compile": False,
        "mem_fraction_static": 0.1,
        "max_running_requests": 16,
        "max_total_tokens": 16384,
        "max_prefill_tokens": 16384,
        "chunked_prefill_size": 4096 if version == "0.5.23" else 2048,
        "enable_mixed_chunk": False,
        "schedule_policy": "fcfs",
        "disable_radix_cache": False,
        "enable_hierarchical_cache": False,
        "enable_dp_attention": False,
        "disaggregation_mode": "null",
        "enable_two_batch_overlap": False,
        "num_continuous_decode_steps": 1,
        "stream_interval": 1,
        "load_format": "dummy",
        "schedule_conservativeness": 1.0,
        "grammar_backend": "none",
    } | graphs
    assert {name: identity.arguments[name] for name in expected} == expected


def test_list_of_arguments_is_that_of_the_plugin() -> None:
    assert SERVER_ARGUMENTS == cyclewatch_sglang.SERVER_ARGUMENTS


def test_every_argument_is_one_of_a_known_version() -> None:
    answers = [json.loads(path.read_bytes()) for path in FIXTURES.glob("*server_info*.json")]
    assert len(answers) == 2
    known = {name for answer in answers for name in answer}
    assert {name.partition(".")[0] for name in SERVER_ARGUMENTS} <= known


def test_no_secret_is_kept_wherever_it_stands() -> None:
    reply: dict[str, Any] = json.loads((FIXTURES / "server_info-0.5.23.json").read_bytes())
    for name in set(reply) - {*SERVER_ARGUMENTS, "version", "cuda_graph_config"}:
        reply[name] = "s3cret"
    reply["s3cret"] = 1
    reply["internal_states"] = [{"api_key": "s3cret", "env_vars": {"HF_TOKEN": "s3cret"}}]
    reply["model_path"] = "https://user:s3cret@models.example/tiny?token=s3cret"
    reply["dtype"] = {"nested": "s3cret"}
    reply["quantization"] = ["s3cret"]
    reply["cuda_graph_config"]["decode"]["bs"] = ["s3cret"]
    reply["cuda_graph_config"]["prefill"] = "s3cret"
    identity = parse(reply)
    assert "s3cret" not in repr(identity)
    assert identity.model == "https://models.example/tiny"


def test_values_are_bounded() -> None:
    arguments = parse(
        {"version": "1", "dtype": "x" * 10_000, "tp_size": 10**30, "page_size": 2, "port": True}
    ).arguments
    assert arguments == {"dtype": "x" * 200, "page_size": 2, "port": True}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_number_that_is_none_is_left_out(number: str) -> None:
    body = f'{{"version": "1", "tp_size": {number}, "dp_size": 2}}'.encode()
    assert parse_server_info("t", URL, body).arguments == {"dp_size": 2}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param((FIXTURES / "server_info-0.5.23.json").read_bytes()[:5000], id="truncated"),
        pytest.param(b"[" * 1_000_000, id="deep"),
        pytest.param(b'{"a":' * 1_000_000, id="deep object"),
        pytest.param(b'{"version": "1", "port": ' + b"9" * 10_000 + b"}", id="huge number"),
        pytest.param(b"<html>s3cret</html>", id="web page"),
        pytest.param(b'\xff\xfe"s3cret', id="not text"),
        pytest.param(b'["s3cret"]', id="no object"),
        pytest.param(b'{"version": 7, "api_key": "s3cret"}', id="no version"),
    ],
)
def test_answer_that_cannot_be_used_is_refused_and_not_quoted(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^the answer (is not JSON|is not a JSON object|has no version)$"):
        parse_server_info("t", URL, body)


@given(st.binary())
def test_garbage_raises_nothing_but_the_documented_error(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_server_info("t", URL, body)


@given(st.dictionaries(st.sampled_from(SERVER_ARGUMENTS) | st.text(), JSON))
def test_any_object_gives_allowed_names_and_plain_values(reply: dict[str, Any]) -> None:
    identity = parse(reply | {"version": "1"})
    assert set(identity.arguments) <= set(SERVER_ARGUMENTS)
    assert all(isinstance(value, bool | int | float | str) for value in identity.arguments.values())
    json.dumps(identity.arguments, allow_nan=False)
