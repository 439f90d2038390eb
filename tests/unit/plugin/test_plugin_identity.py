"""What the plugin says of the server it is in, in the header of the ring."""

import sys
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cyclewatch_sglang as plugin
from cyclewatch.collectors.server_info import allowed_arguments


def identity(**arguments: Any) -> dict[str, Any]:
    scheduler = SimpleNamespace(device="cuda:0", server_args=SimpleNamespace(**arguments))
    return plugin.identity(scheduler)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://user:s3cret@models.example/tiny?token=s3cret#x", "https://models.example/tiny"),
        ("s3://key:s3cret@bucket/tiny", "s3://bucket/tiny"),
        ("https://user:s3cret@models.example", "https://models.example"),
        ("/models/a@b?c", "/models/a@b?c"),
        ("org/tiny", "org/tiny"),
    ],
)
def test_addresses_lose_their_credentials(given: str, kept: str) -> None:
    """As they do in what the server answers over HTTP; a path that only looks odd stays."""
    assert identity(model_path=given)["server"] == {"model_path": kept}
    assert allowed_arguments({"model_path": given}) == {"model_path": kept}


def test_graph_sizes_are_kept() -> None:
    """A list in 0.5.4; in 0.5.23 inside an object, which over HTTP is one of JSON."""
    phase = {"backend": "full", "bs": [1, 2, 4], "max_bs": 4}
    expected = {
        "cuda_graph_bs": "1,2,4",
        "cuda_graph_config.decode.backend": "full",
        "cuda_graph_config.decode.bs": "1,2,4",
        "cuda_graph_config.prefill.backend": "full",
        "cuda_graph_config.prefill.max_bs": 4,
    }
    config = SimpleNamespace(decode=SimpleNamespace(**phase), prefill=SimpleNamespace(**phase))
    assert identity(cuda_graph_bs=[1, 2, 4], cuda_graph_config=config)["server"] == expected
    as_json = {"decode": phase, "prefill": phase}
    assert identity(cuda_graph_bs=[1, 2, 4], cuda_graph_config=as_json)["server"] == expected
    assert allowed_arguments({"cuda_graph_bs": [1, 2, 4], "cuda_graph_config": as_json}) == expected


@pytest.mark.parametrize("resolved", [{"page_size": 16, "api_key": "s3cret"}, RuntimeError("not resolved yet")])
def test_what_sglang_made_of_the_arguments_counts(resolved: Any) -> None:
    """In 0.5.23 the arguments stay as they were given; where they cannot be resolved, they have to do."""

    class Arguments:
        page_size = None
        tp_size = 2

        def resolved_dict(self) -> dict[str, Any]:
            if isinstance(resolved, Exception):
                raise resolved
            return {**resolved, "tp_size": 2}

    scheduler = SimpleNamespace(device="cuda", server_args=Arguments())
    expected = {"tp_size": 2} if isinstance(resolved, Exception) else {"tp_size": 2, "page_size": 16}
    assert plugin.identity(scheduler)["server"] == expected


def test_flags_that_are_off_are_left_out() -> None:
    """A zero is no flag."""
    kept = identity(disable_cuda_graph=False, enable_torch_compile=True, cpu_offload_gb=0, page_size=None)["server"]
    assert kept == {"enable_torch_compile": True, "cpu_offload_gb": 0}


def test_versions_of_torch_and_of_the_kernel_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """From what is imported and installed; nothing is imported for it."""
    built = ModuleType("torch.version")
    vars(built).update(__version__="2.14.1+cu130", cuda="13.0", hip=None)
    monkeypatch.setitem(sys.modules, "torch.version", built)

    def version(name: str) -> str:
        if name == "triton":
            return "3.9.0"
        if name == "transformers":
            raise ValueError("damaged")
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    before = set(sys.modules)
    assert identity()["software"] == {
        "python": sys.version.split()[0],
        "torch": "2.14.1+cu130",
        "torch_cuda": "13.0",
        "triton": "3.9.0",
    }
    assert set(sys.modules) == before


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.version", raising=False)
    assert "torch" not in identity()["software"]
