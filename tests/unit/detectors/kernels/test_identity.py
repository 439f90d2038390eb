import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.detectors.kernels.identity import MAX_NAME, match_truncated, normal_form, same_kernel
from shared_data import kernel_names

SPELLINGS = """
void flash::prepare<(int)8, (bool)1>(int, const T1 *)
void flash::prepare<8, true>(int, int const*)
_ZN5flash7prepareILi8ELb1EEEviPKi

void at::native::fill<(int)4, at::native::FillFunctor<int>, std::array<char *, (unsigned long)1>>(int, T2, T3)
void at::native::fill<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int, at::native::FillFunctor<int>)
void at::native::fill<4, at::native::FillFunctor<int>, at::detail::Array<char*, 1> >(int, at::native::FillFunctor<int>)

void at::native::<unnamed>::Cat<at::native::<unnamed>::OpaqueType<(unsigned int)4>, unsigned int, (int)-3>(T1 *, int)
void at::native::(anonymous namespace)::Cat<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, -3>(char*)
void at::native::Cat<at::native::OpaqueType<4u>, unsigned int, -3>(char*, int)

void loop<(int)128, void impl<copy(Base &)::[lambda() (instance 3)]::operator ()() const::[lambda(c10::Half) (instance 1)]>(Base &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)
void loop<128, impl<copy(Base&)::{lambda()#3}::operator()() const::{lambda(c10::Half)#1}>(Base&, copy(Base&) const&)::{lambda(int)#1}>(int, int)

std::enable_if<!T7, void>::type internal::gemvx::kernel<int, float, (bool)0, (int)7>(T13)
std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, false, 7>(int)

void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu<float>>(T1 *, const T1 *, int)
void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(float silu<float>(float const&))>(__nv_bfloat16*, int)

void at_cuda_detail::cub::DeviceScanInitKernel<at_cuda_detail::cub::ScanTileState<int, (bool)1>>(T1, int)
void cub::DeviceScanInitKernel<cub::ScanTileState<int, true> >(cub::ScanTileState<int, true>, int)
void cub::CUB_200200_890_NS::DeviceScanInitKernel<cub::CUB_200200_890_NS::ScanTileState<int, true> >(int)

_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i
void sgl_hip::activation::act_and_mul_kernel<__hip_bfloat16, &silu<__hip_bfloat16>>(T1 *, const T1 *, int)

nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT
 nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT

triton_poi_fused_clamp_sub_0
triton_poi_fused_clamp_sub_0.kd

void k<2048l, -1, 0u>(int)
void k<(long)2048, (int)-1, (unsigned int)0>(T1)
k<2048, -1, 0>
"""  # noqa: E501 (names are as long as they are)
"""A paragraph for each kernel: how different tools and releases spell its name."""


@pytest.mark.parametrize("paragraph", SPELLINGS.strip().split("\n\n"))
def test_spellings_of_one_kernel_have_one_key(paragraph: str) -> None:
    first, *others = paragraph.splitlines()
    for other in others:
        assert normal_form(other).key == normal_form(first).key
        assert same_kernel(first, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void k<(int)8>(int)", "void k<(int)16>(int)"),
        ("void k<float>(int)", "void k<double>(int)"),
        ("void k<(bool)1>(int)", "void k<(bool)0>(int)"),
        ("void k<(a::Mode)1>(int)", "void k<(a::Mode)2>(int)"),
        ("void a::k(int)", "void b::k(int)"),
        ("void f<g()::{lambda(int)#1}>()", "void f<g()::{lambda(int)#2}>()"),
        ("void f<g()::{lambda(int)#1}>()", "void f<g()::{lambda(long)#1}>()"),
        ("void k<unsigned int>()", "void k<int>()"),
        ("void k<char*>()", "void k<char>()"),
        ("nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT", "nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNN"),
    ],
)
def test_what_tells_kernels_apart_stays(one: str, other: str) -> None:
    assert not same_kernel(one, other)


def test_the_head_is_the_name_without_template_arguments() -> None:
    form = normal_form("std::enable_if<!T7, void>::type internal::gemvx<int>::kernel<int, (bool)0>(T13)")
    assert form.head == "internal::gemvx::kernel"
    assert form.key == "internal::gemvx<int>::kernel<int,false>"


@pytest.mark.parametrize("name", ["Memcpy DtoD (Device -> Device)", "Memset (Device)", "[CUDA memcpy Host-to-Device]"])
def test_names_in_words_stay(name: str) -> None:
    assert normal_form(name).key == name


class TestCutNames:
    NAMES = (
        "void flash_fwd_kernel<Traits<128, 64>, true, false>(Params)",
        "void flash_fwd_kernel<Traits<128, 64>, true, true>(Params)",
        "void at::native::vectorized_elementwise_kernel<4, FillFunctor<int>, std::array<char*, 1ul> >(int)",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    )

    @pytest.mark.parametrize("mark", ["...", "…"])
    def test_a_cut_name_matches_the_only_kernel_that_begins_so(self, mark: str) -> None:
        cut = self.NAMES[0][:47] + mark
        assert normal_form(cut).truncated
        assert match_truncated(cut, self.NAMES) == self.NAMES[0]

    def test_a_cut_name_matches_none_of_several(self) -> None:
        assert match_truncated(self.NAMES[0][:40] + "...", self.NAMES) is None

    def test_spellings_of_one_kernel_are_no_ambiguity(self) -> None:
        other = "void flash_fwd_kernel<Traits<(int)128, (int)64>, (bool)1, (bool)0>(T1)"
        assert match_truncated(self.NAMES[0][:47] + "...", [self.NAMES[0], other]) == self.NAMES[0]

    def test_a_cut_name_matches_the_spelling_of_another_tool(self) -> None:
        cut = "void flash_fwd_kernel<Traits<(int)128, (int)64>, (bool)1, (bool)0>(T…"
        assert match_truncated(cut, self.NAMES) == self.NAMES[0]

    def test_a_name_that_was_cut_in_its_parameters_is_whole(self) -> None:
        form = normal_form("ncclDevKernel_SendRecv(ncclDevKernelArgsStor...")
        assert (form.key, form.truncated) == ("ncclDevKernel_SendRecv", False)

    def test_a_type_that_other_releases_call_otherwise_does_not_hinder(self) -> None:
        cut = "void at::native::vectorized_elementwise_kernel<4, FillFunctor<int>, at::detail::Ar..."
        assert match_truncated(cut, self.NAMES) == self.NAMES[2]

    def test_nothing_fits(self) -> None:
        assert match_truncated("void other_kernel<4, fl...", self.NAMES) is None

    def test_cut_names_are_never_surely_the_same(self) -> None:
        cut = self.NAMES[0][:40] + "..."
        assert not same_kernel(cut, cut)

    @pytest.mark.parametrize(("width", "mark"), [(55, "..."), (100, "...")])
    def test_no_match_is_wrong_in_real_profiles(self, width: int, mark: str) -> None:
        """Names of the shared profiles, cut as torch's tables cut them."""
        names = kernel_names()
        whole = {name: normal_form(name) for name in names if not name.endswith(("...", "…"))}
        matched = 0
        for name, form in whole.items():
            cut = name[: width - len(mark)] + mark
            if len(name) > width and (found := match_truncated(cut, whole)):
                assert whole[found].key == form.key, cut
                matched += 1
        print(f"cut at {width}: {matched} of {len(whole)} names matched, none wrongly")
        assert matched


HOSTILE = {
    "brackets": "<" * 10**6,
    "parentheses": "(" * 10**6,
    "templates": "a<" * 10**6,
    "scopes": "a::" * 10**6,
    "arguments": "f<" + "," * 10**6 + ">",
    "spaces": "a" + " " * 10**6 + "b",
    "mangled": "_ZN" + "1a" * 10**6 + "E",
    "suffixes": ".kd" * 10**6,
    "operators": "operator " * 10**6,
    "lambdas": "[lambda() (instance 1)]" * 10**5,
    "bytes": "\x00\ud800\uffff" * 10**5,
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_cut_and_done(name: str) -> None:
    form = normal_form(name)
    assert form.truncated
    assert len(form.key) <= MAX_NAME


def test_a_mangled_name_that_grows_without_bound_stays_mangled() -> None:
    """Each substitution doubles what it stands for: 240 characters would become 268 million."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    steps = "".join(f"S_IS{digits[at]}_S{digits[at]}_E" for at in range(24))
    name = f"_Z1f1AIiiE{steps}"
    assert len(normal_form(name).key) < 1 << 17


@given(st.text(alphabet="ab:<>()[]{},&* 01u!'_Z.…-", max_size=80))
def test_any_text_has_a_normal_form_and_it_is_its_own(name: str) -> None:
    form = normal_form(name)
    assert normal_form(name) == form
    assert json.dumps(form.key)


@given(st.lists(st.sampled_from(["8", "true", "float", "a::B<3>", "unsigned int"]), min_size=1, max_size=5))
def test_spaces_say_nothing(arguments: list[str]) -> None:
    dense, wide = ",".join(arguments), " , ".join(arguments)
    assert same_kernel(f"void n::k<{dense}>(int)", f"void n::k< {wide} > (int)")
