import math

import pytest

from cyclewatch.config.catalogues import hardware, operators
from cyclewatch.detectors.kernels.hardware import find_hardware
from cyclewatch.detectors.kernels.operators import find_operator, known_s, shape_of
from cyclewatch.detectors.kernels.roofline import BYTES_BY_DTYPE, RooflineError, roofline
from cyclewatch.detectors.kernels.work import FORMULAS
from operators_page import END, PAGE, as_printed, median_roofline, median_shape, page_with_table, table
from shared_data import seed

UNKNOWN_SHAPES = {"fp8_blockscale_fused_moe", "paged_attention_decode", "mla_decode_attention"}


class TestCheckedExamples:
    """By hand: figures that stand in the project's source documents."""

    def test_attention_forward(self) -> None:
        attention = find_operator("attention_forward")
        shape, assumed = shape_of(attention, "30793,32,128")
        assert assumed == ()
        on_h20 = roofline(attention, shape, "bf16", hardware()["H20"], time_s=0.1242)
        assert on_h20.flops == 4 * 30793**2 * 32 * 128
        assert on_h20.intensity == pytest.approx(15_400, rel=1e-3)
        assert round(on_h20.t_sol_s * 1e3, 2) == 104.97
        assert on_h20.regime == "compute"
        on_xpu_a = roofline(attention, shape, "bf16", hardware()["XPU-A"], time_s=0.1242)
        assert round(on_xpu_a.t_sol_s * 1e3, 2) == 66.78
        assert on_xpu_a.s == pytest.approx(0.538, abs=5e-4)

    def test_silu_and_mul_has_its_input_as_shape(self) -> None:
        silu = find_operator("silu_and_mul")
        found = roofline(silu, shape_of(silu, "256,4096")[0], "bf16", hardware()["H20"])
        assert round(found.t_sol_s * 1e6, 2) == 0.79
        assert found.regime == "memory"
        assert found.s is None


class TestCatalogue:
    def test_it_is_whole(self) -> None:
        assert len(operators()) == 30
        assert sum(len(one.shapes) for one in operators().values()) == 440
        assert sum(one.importance for one in operators().values()) == pytest.approx(1.096)

    @pytest.mark.parametrize("name", sorted(set(operators()) - UNKNOWN_SHAPES))
    def test_the_speed_of_light_of_every_median_shape_that_is_told(self, name: str) -> None:
        operator = operators()[name]
        printed = operator.median
        assert as_printed(median_roofline(operator, "H20").t_sol_s, printed.t_sol_h20) == printed.t_sol_h20
        assert as_printed(median_roofline(operator, "XPU-A").t_sol_s, printed.t_sol_xpu_a) == printed.t_sol_xpu_a

    @pytest.mark.parametrize("name", sorted(UNKNOWN_SHAPES))
    def test_shapes_that_are_not_told(self, name: str) -> None:
        with pytest.raises(RooflineError):
            median_roofline(operators()[name], "H20")

    def test_it_is_the_source_documents_catalogue(self) -> None:
        lines = seed("003").read_text().splitlines()
        for one in operators().values():
            (count,) = [line for line in lines if line.startswith(f"{one.name} {one.catalogue_id} | ")]
            _, dtype, shapes, importance, _ = (
                count.split(" | ") if count.count(" | ") == 4 else (*count.split(" | "), "")
            )
            assert (dtype, int(shapes), importance.rstrip(" |")) == (
                one.dtype,
                len(one.shapes),
                f"{one.importance:.1%}",
            )
            median = one.median
            figures = f"{median.intensity} | {median.t_sol_h20} | {median.t_sol_xpu_a} | {median.measured} |"
            assert any(line.startswith(f"{one.name} | ") and line.endswith(figures) for line in lines)
            begin = next(at for at, line in enumerate(lines) if line.startswith(f"| ▶ | {one.name} | "))
            for shape, line in zip(one.shapes, lines[begin + 1 :], strict=False):
                assert line.startswith(f"| #{shape.number} ({shape.engine}), ")
                assert line.endswith(f"| {shape.s:.1%} | ||||")

    def test_s_was_measured_on_xpu_a(self) -> None:
        """Where two decimals are enough to see it."""
        seen = 0
        for one in operators().values():
            (s,) = (shape.s for shape in one.shapes if shape.number == one.median.number)
            if one.name not in UNKNOWN_SHAPES and s > 0.02:
                number, unit = one.median.measured.split()
                measured_s = float(number) * {"us": 1e-6, "ms": 1e-3}[unit]
                assert median_roofline(one, "XPU-A").t_sol_s / measured_s == pytest.approx(s, rel=0.06), one.name
                seen += 1
        assert seen > 10

    @pytest.mark.parametrize("name", operators())
    def test_every_operator_has_a_formula_of_its_dimensions(self, name: str) -> None:
        operator = operators()[name]
        for one in operator.shapes:
            assert set(one.shape) <= set(operator.dimensions)
        cost = FORMULAS[name](BYTES_BY_DTYPE[operator.dtype], **dict.fromkeys(operator.dimensions, 128))
        assert cost.bytes > 0
        assert math.isfinite(cost.flops)

    @pytest.mark.parametrize("name", operators())
    def test_more_rows_take_longer(self, name: str) -> None:
        operator = operators()[name]
        small = dict.fromkeys(operator.dimensions, 64)
        first = next(one for one in ("tokens", "rows", "seqs", "m") if one in small)
        costs = [FORMULAS[name](2.0, **{**small, first: rows}) for rows in (64, 6400)]
        assert costs[1].flops >= costs[0].flops
        assert costs[1].bytes > costs[0].bytes

    def test_the_page_has_the_table(self) -> None:
        """Run `.venv/bin/python tests/operators_page.py` after a change."""
        assert END in PAGE.read_text()
        assert page_with_table(PAGE.read_text()) == PAGE.read_text()
        assert table().count("| yes") == 27


class TestShapes:
    @pytest.mark.parametrize(
        "text", ["8,2048", "(8, 2048)", "8x2048", "[8,2048]", "tokens=8,hidden=2048", "hidden=2048, tokens=8"]
    )
    def test_ways_to_write_one(self, text: str) -> None:
        assert shape_of(find_operator("rms_norm"), text) == ({"tokens": 8, "hidden": 2048}, ())

    def test_rows_of_rows_are_rows(self) -> None:
        assert shape_of(find_operator("layer_norm"), "(15476,1,1152)")[0] == {"tokens": 15476, "hidden": 1152}

    def test_what_has_a_default_may_be_left_out(self) -> None:
        shape, assumed = shape_of(find_operator("block_scaled_mm"), "237,4096")
        assert shape == {"m": 237, "k": 4096, "n": 4096}
        assert assumed == ("n",)

    @pytest.mark.parametrize(
        ("name", "text", "said"),
        [
            ("attention_forward", "5", "lacks heads, head_dim"),
            ("attention_forward", "1,2,3,4", "has 4 numbers"),
            ("attention_forward", "tokens=1,head=2", "did you mean heads?"),
            ("attention_forward", "1,2,x3x", None),
            ("attention_forward", "1,-2,3", "'-2'"),
            ("attention_forward", "0,2,3", "'0'"),
            ("attention_forward", "nan,2,3", "'nan'"),
            ("attention_forward", "9" * 200 + ",2,3", "no whole number"),
            ("attention_forward", "", "is empty"),
            ("attention_forward", "(" * 10_000, "is empty"),
        ],
    )
    def test_wrong_ones_are_told_what_would_be_right(self, name: str, text: str, said: str | None) -> None:
        if said is None:
            assert shape_of(find_operator(name), text)[0] == {"tokens": 1, "heads": 2, "head_dim": 3}
            return
        with pytest.raises(RooflineError) as raised:
            shape_of(find_operator(name), text)
        assert said in str(raised.value)
        assert "wants tokens,heads,head_dim (attention" in str(raised.value)
        assert len(str(raised.value)) < 400

    def test_an_unknown_operator_is_told_the_nearest(self) -> None:
        with pytest.raises(RooflineError, match="did you mean silu_and_mul"):
            find_operator("silu_mul")

    def test_the_catalogues_own_s_is_found_by_the_shape(self) -> None:
        attention = find_operator("attention_forward")
        assert known_s(attention, shape_of(attention, "30793,32,128")[0]) == 0.538
        assert known_s(attention, shape_of(attention, "30794,32,128")[0]) is None


DEVICES = {
    "NVIDIA H20": "H20",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H800": "H800",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA A100-SXM4-80GB": "A100 80GB",
    "A100-SXM4-40GB": "A100 40GB",
    "NVIDIA A100-PG509-200": "A100 40GB",
    "NVIDIA A100 80GB PCIe": "A100 80GB PCIe",
    "NVIDIA A800-SXM4-80GB": "A800",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA L40": "L40",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 5090": "RTX 5090",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Blackwell",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Blackwell Server",
    "Tesla V100-SXM2-16GB": "V100",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI250X": "MI250X",
    "AMD Instinct MI300X VF": "MI300X",
    "AMD Instinct MI325X": "MI325X",
    "AMD Instinct MI355X": "MI355X",
    "h20": "H20",
    "xpu-a": "XPU-A",
    "AMD Radeon Graphics": None,
    "NVIDIA GeForce RTX 4090 D": None,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
    "": None,
}


@pytest.mark.parametrize(("device", "name"), DEVICES.items())
def test_devices_are_known_by_the_names_that_they_give(device: str, name: str | None) -> None:
    found = find_hardware(device)
    assert (found.name if found else None) == name


class TestHardware:
    def test_every_entry_is_found_by_its_own_name(self) -> None:
        assert [find_hardware(name) for name in hardware()] == list(hardware().values())

    def test_xpu_a_is_what_the_catalogues_columns_imply(self) -> None:
        h20, xpu_a = hardware()["H20"], hardware()["XPU-A"]
        assert round(xpu_a.flops["bf16"] / h20.flops["bf16"], 3) == 1.572
        assert round(xpu_a.bandwidth / h20.bandwidth, 3) == 1.325

    def test_peaks_are_in_proportion(self) -> None:
        """A figure with sparsity among those without would be twice its neighbours."""
        for one in hardware().values():
            half = one.flops.get("bf16") or one.flops["fp16"]
            assert 1.9 < one.flops.get("fp8", 2 * half) / half < 2.1, one.name
            assert 0.4 < one.flops.get("tf32", half / 2) / half < 0.55, one.name
            assert 30 < half / one.bandwidth < 450, one.name
            assert one.source

    def test_a_type_that_a_gpu_has_no_units_for(self) -> None:
        norm = find_operator("block_scaled_mm")
        with pytest.raises(RooflineError, match="no peak for fp8_e4m3 on A100 80GB is known; known are bf16"):
            roofline(norm, shape_of(norm, "16,128")[0], "fp8_e4m3", hardware()["A100 80GB"])

    def test_indexing_needs_no_peak(self) -> None:
        sort = find_operator("moe_count_and_sort")
        found = roofline(sort, shape_of(sort, "520,8,128")[0], "int32", hardware()["H20"])
        assert (found.flops, found.ridge, found.regime) == (0, None, "memory")


def test_a_median_shape_can_be_given_to_the_command() -> None:
    assert median_shape(operators()["rms_norm"]) == "tokens=7,hidden=1280"
