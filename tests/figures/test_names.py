import pytest

from scalepod.figures.names import short_names


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["01_model.transformer.h.0.attn", "02_model.transformer.h.1.attn"], ["01 h.0", "02 h.1"]),
        (["01_model.transformer.h.0.attn"], ["01 h.0.attn"]),
        (["01_attn"], ["01 attn"]),
        (["attn"], ["attn"]),
        (["01_attn", "02_attn"], ["01 attn", "02 attn"]),
        (["01_m.attn", "02_m.attn#1"], ["01 attn", "02 attn#1"]),
        (["01_h.0.attn/h0", "02_h.0.attn/h1"], ["01 attn/h0", "02 attn/h1"]),
        (["01_encoder.0.attn", "02_decoder.0.attn"], ["01 encoder", "02 decoder"]),
        (["01_h.0.attn", "02_h.0.cross.attn"], ["01 attn", "02 cross.attn"]),
        (["01_a", "02_a.b"], ["01 a", "02 a.b"]),
    ],
)
def test_what_all_names_share_is_left_out(names, short):
    assert short_names(names) == short


def test_long_names_keep_both_ends():
    names = ["01_first_block_with_a_very_long_name.x", "02_second_block_with_a_very_long_name.y"]
    first, second = short_names(names)
    assert len(first) == len(second) == 21
    assert first.startswith("01 first_")
    assert second.startswith("02 second")
    assert first.endswith("name.x")
