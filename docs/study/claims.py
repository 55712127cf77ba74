"""The claims of arXiv 2606.06573, 2605.21842 and 2605.26355, each as checks that the runs of the study pass or not.

Each function states the claim, what is measured for it, and what makes the verdict. `verdicts` has the rule that turns
checks into verdicts: a claim *holds* when every check passes, *does not hold* when one certainly fails, and otherwise
*cannot be told from this*. Layers are counted from 1. A claim is first read as published, as far as its definitions can
be applied to attention that looks back, and then, where that differs, with scalepod's.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from observed import Study, Weights
from verdicts import Check, Reading

from scalepod.confidence.groups import N_GROUPS
from scalepod.confidence.trainings import Estimate, exact

INF = math.inf
EARLY, MIDDLE, LATE = (1, 2), (3, 4), (5, 6)
ALL = (*EARLY, *MIDDLE, *LATE)
CLAIMED_PEAKS = {2: (2, 10), 4: (10, 35), 6: (10, 40)}
"""Lags at which the modes of a layer are claimed to peak."""
MODEL: Weights = {1: 1.0}
"""For values that are of the whole model."""


class Claim(NamedTuple):
    """A claim with its readings."""

    title: str
    """The claim in one sentence."""
    measured: str
    """What is measured, and with which range it is read."""
    readings: tuple[Reading, ...]


def energy_moves_back(study: Study) -> Claim:
    """1. The energy sits at lags up to 7 in layers 1-2, and at lags of at least 20 in layers 5-6.

    Measured: the share of the energy at those lags, of the attention itself (the sum of its squares) and of the
    fluctuation, in the baseline. Holds if it is more than half in each of the four layers; does not hold if it is
    certainly less than half in one of them.
    """

    def reading(title: str, prefix: str) -> Reading:
        near = [_layer(study, "share of layer {} at lags up to 7", f"{prefix}share_to_7", k, 0.5) for k in EARLY]
        far = [_layer(study, "share of layer {} at lags from 20 on", f"{prefix}share_from_20", k, 0.5) for k in LATE]
        return Reading(title, (*near, *far))

    return Claim(
        "Energy sits at lags up to 7 tokens in layers 1-2, and at lags of at least 20 in layers 5-6.",
        "Share of the energy at those lags, in the baseline; claimed: more than half.",
        (reading("attention itself", "attention_"), reading("fluctuation", "")),
    )


def concentration_is_one_early(study: Study) -> Claim:
    """2. T_spec is about 1.0 in layers 1-2, and another value later.

    Measured: T_spec of the field spectrum (published) and of the lag spectrum, in the baseline. "About 1.0" is 0.9 to
    1.1. Holds if both early layers lie in that range and all four later ones outside; does not hold if one of them is
    certainly on the other side.
    """
    return Claim(
        "T_spec is about 1.0 in layers 1-2, and takes other values later.",
        'T_spec over modes 1 to 30 at N = 150, in the baseline; "about 1.0" is read as 0.9 to 1.1.',
        tuple(
            Reading(
                f"{kind} spectrum",
                tuple(
                    Check(f"{kind} T_spec of layer {k}", _at(study, name, k), 0.9, 1.1, inside=k in EARLY) for k in ALL
                ),
            )
            for kind, name in (("field", "t_spec"), ("lag", "lag_t_spec"))
        ),
    )


def rank_exceeds_150(study: Study) -> Claim:
    """3. At N = 150, H*(0.10) exceeds 150 in layers 1-2 and is about 91 in layers 3-6.

    Measured: H*(0.10) of the field spectrum of 150 documents, in the baseline. 150 documents about their mean span 149
    dimensions, so no spectrum can pass the first part. "About 91" is within a tenth: 82 to 100. Holds if all six layers
    lie in their ranges; does not hold if one certainly does not.
    """
    early = [_layer(study, "H*(0.10) of layer {}", "h_star_0.10", k, 150) for k in EARLY]
    later = [_layer(study, "H*(0.10) of layer {}", "h_star_0.10", k, 82, 100) for k in (*MIDDLE, *LATE)]
    return Claim(
        "At 150 documents H*(0.10) exceeds 150 in layers 1-2, and is about 91 in layers 3-6.",
        'H*(0.10) of the field spectrum at N = 150, in the baseline; "about 91" is read as 82 to 100. 150 documents '
        "about their mean have at most 149 modes, so the first part cannot be met by anything: H*(0.10) counts "
        "documents.",
        (Reading("field spectrum", (*early, *later)),),
    )


def modes_peak_further_back(study: Study) -> Claim:
    """4. The modes of layer 2 peak at lags 2-10, those of layer 4 at 10-35, those of layer 6 at several in 10-40.

    Measured: energy at each lag of the three leading field modes, weighted by their eigenvalues, in the baseline: the
    lag of its maximum, and for layer 6 how many peaks it has at lags 10 to 40 that rise over their surroundings by a
    tenth of the maximum. Holds if the maxima lie in their ranges and layer 6 has at least two peaks in its own; does
    not hold if one certainly does not.
    """
    peaks = [_layer(study, "peak lag of layer {}", "mode_peak", k, *span) for k, span in CLAIMED_PEAKS.items()]
    several = _layer(study, "number of peaks of layer {} at lags 10-40", "mode_peaks", 6, 1.5)
    return Claim(
        "Modes of layer 2 peak at lags 2-10, those of layer 4 at 10-35, and those of layer 6 have several peaks over "
        "10-40.",
        "Energy by lag of the three leading field modes, in the baseline: the lag of its maximum, and the number of "
        "maxima at lags 10 to 40 that rise by a tenth of the highest; several are more than 1.5.",
        (Reading("leading field modes", (*peaks, several)),),
    )


def gating_raises_energy(study: Study) -> Claim:
    """5. Gating raises the energy of the scalogram in all layers.

    Measured: logarithm of the ratio of sum_ab S(a, b) with a gate to that of the baseline, of the attention itself
    (published) and of the fluctuation. Holds if it is positive in all layers; does not hold if it is certainly negative
    in one.
    """

    def reading(title: str, model: str, quantity: str) -> Reading:
        name = "log of the energy ratio of layer {}"
        return Reading(title, tuple(_change(study, name, model, quantity, k, 0) for k in ALL))

    return Claim(
        "Gating raises the energy of the scalogram in all layers.",
        "Natural logarithm of the scalogram's energy with a gate over that of the baseline; claimed: positive.",
        (
            reading("attention, published gate", "ega_published", "log_scalogram"),
            reading("attention, causal gate", "ega", "log_scalogram"),
            reading("fluctuation, causal gate", "ega", "log_scalogram_fluctuation"),
        ),
    )


def gating_moves_concentration(study: Study) -> Claim:
    """6. Energy-gated attention raises T_spec in layers 3-4, and lowers it in layers 5-6.

    Measured: T_spec with a gate less that of the baseline on the same documents. Holds if it is positive in layers 3
    and 4 and negative in 5 and 6; does not hold if one is certainly of the other sign.
    """

    def reading(title: str, model: str, quantity: str) -> Reading:
        name = "change of T_spec in layer {}"
        up = [_change(study, name, model, quantity, k, 0) for k in MIDDLE]
        down = [_change(study, name, model, quantity, k, -INF, 0) for k in LATE]
        return Reading(title, (*up, *down))

    return Claim(
        "Energy-gated attention raises T_spec in layers 3-4, and lowers it in layers 5-6, against the baseline.",
        "T_spec with a gate less that of the baseline, on the same documents.",
        (
            reading("field spectrum, published gate", "ega_published", "t_spec"),
            reading("field spectrum, causal gate", "ega", "t_spec"),
            reading("lag spectrum, causal gate", "ega", "lag_t_spec"),
        ),
    )


def later_modes_carry_more(study: Study) -> Claim:
    """7. The leading modes of later layers carry more of the variance.

    Measured: share of the energy in the first three modes, mean over two layers, and its difference from the two layers
    before, in the baseline. Holds if it rises both times; does not hold if it certainly falls once.
    """

    def reading(kind: str, quantity: str) -> Reading:
        steps = ((EARLY, MIDDLE), (MIDDLE, LATE))
        return Reading(
            f"{kind} modes",
            tuple(
                Check(
                    f"rise of the share from layers {a[0]}-{a[1]} to {b[0]}-{b[1]}",
                    study.level("baseline", quantity, {**dict.fromkeys(a, -0.5), **dict.fromkeys(b, 0.5)}),
                    0,
                    INF,
                )
                for a, b in steps
            ),
        )

    return Claim(
        "The leading modes of later layers carry more of the variance.",
        "Share of the energy in the first three modes, mean over two layers, less that of the two layers before, in "
        "the baseline.",
        (reading("field", "leading_share"), reading("lag", "lag_leading_share")),
    )


def windows_separate_scales(study: Study) -> Claim:
    """8. POD of the field without windows mixes scales, and windowed POD separates them.

    Measured: how many of the three bands (lags up to 6, 7-20, from 21 on) a leading field mode amounts to (the
    exponential of the entropy of its shares; mean of three modes, weighted by their eigenvalues), in the baseline.
    Holds if the modes of the unwindowed field amount to more than 1.5 bands, mean over the layers, and those in the
    windows around lags 4, 12 and 36, on average, to fewer in every layer; does not hold if one is certainly the other
    way.
    """
    whole = study.level("baseline", "bands_of_modes", dict.fromkeys(ALL, 1 / len(ALL)))
    fewer = [_layer(study, "bands fewer of the windowed modes, layer {}", "bands_lost_by_windows", k, 0) for k in ALL]
    return Claim(
        "POD of the unwindowed field mixes scales, and windowed POD separates them.",
        "Bands of lags (up to 6, 7 to 20, from 21 on) that a leading field mode amounts to, 1 to 3, mean of the "
        "first three, in the baseline: without window, mean over the layers; and how many fewer in the windows of the "
        "bands.",
        (
            Reading(
                "leading field modes",
                (
                    Check("bands of the unwindowed modes, mean over layers", whole, 1.5, INF),
                    *fewer,
                ),
            ),
        ),
    )


def modes_are_optimal(study: Study) -> Claim:
    """9. The modes are the optimal linear basis (Theorem 1).

    Measured: the error that the first ten field modes leave, reconstructed, less sum_{k > 10} lambda_k, as a share of
    the energy; and by how much ten of the documents' own fluctuations, and ten cosines, leave more. The largest or
    smallest over the layers of the first run of the baseline. A theorem has no error bars: it holds if the first is
    below 1e-6 and the others are positive, else it does not hold.
    """
    first = study.of("baseline")[:1]

    def over_layers(pick: Callable[[Sequence[float]], float], *names: str) -> Estimate:
        """Largest or smallest over layers, of a value or of the first less the second."""
        if not first:
            return exact(math.nan)
        columns = [first[0].numbers[f"left_{name}"][:, 0].tolist() for name in names]
        values = columns[0] if len(columns) == 1 else [a - b for a, b in zip(*columns, strict=True)]
        return exact(pick(values))

    return Claim(
        "The modes are the optimal linear basis (Theorem 1).",
        "Ten field modes of the baseline: what they leave, less the sum of the other eigenvalues; and how much more of "
        "the energy other bases of ten fields leave. The worst layer.",
        (
            Reading(
                "field modes",
                (
                    Check("error against sum of eigenvalues", over_layers(max, "identity"), -INF, 1e-6),
                    Check(
                        "more left by ten documents' own fluctuations", over_layers(min, "documents", "modes"), 0, INF
                    ),
                    Check("more left by ten cosines", over_layers(min, "cosines", "modes"), 0, INF),
                ),
            ),
        ),
    )


def losses_improve(study: Study) -> Claim:
    """10. Energy-gated attention lowers the validation loss, Morlet positions alone raise it, both together lower it.

    Published at full size: 1.4742 nats for the baseline, 1.3712 with the gate (0.103 better), MoPE 0.032 worse, both
    0.119 better. Measured: the loss less that of the baseline, of the whole held-out text in one pass; and for 32
    documents, at every fourth position, predicted from what came before alone. Holds if every difference has the
    published sign; does not hold if one certainly has the other. The published gate was not trained with Morlet
    positions. The last reading asks whether the trained published gate, which sees later tokens, predicts as well when
    there are none: a question to this one model, so its error is over documents alone.
    """

    def reading(title: str, quantity: str, gate: str) -> Reading:
        said = [(gate, "the gate", -INF, 0.0), ("morlet", "Morlet positions", 0.0, INF)]
        if gate == "ega":
            said.append(("ega_morlet", "both", -INF, 0.0))
        checks = [
            Check(f"change of the loss by {words}", study.change("baseline", model, quantity, MODEL), low, high)
            for model, words, low, high in said
        ]
        return Reading(title, tuple(checks))

    gap = study.level("ega_published", "loss_gap", MODEL)._replace(seeds=0.0, freedom=N_GROUPS - 1)
    same = Check("loss of the trained model left to right less that in one pass", gap, -0.001, 0.001)
    return Claim(
        "The gate lowers the validation loss (by 0.103 nats at full size), Morlet positions alone raise it (by 0.032), "
        "both together lower it (by 0.119).",
        "Loss less that of the baseline, nats a character. In one pass: the whole held-out text. Left to right: 32 "
        "documents, every fourth position, each predicted from what came before alone. The last value is of one "
        "training, its error over documents alone.",
        (
            reading("in one pass, published gate", "loss", "ega_published"),
            reading("left to right, published gate", "loss_left_to_right", "ega_published"),
            reading("in one pass, causal gate", "loss", "ega"),
            reading("left to right, causal gate", "loss_left_to_right", "ega"),
            Reading("the published gate predicts left to right what it does in one pass", (same,)),
        ),
    )


def heads_are_misallocated(study: Study) -> Claim:
    """11. Eight heads in every layer are too many for deep layers and too few for early ones.

    Measured: distinct heads (the exponential of the entropy of the eigenvalues of the heads' Gram matrix), in the
    baseline. Too many: at most half of the eight, 4, in layers 5 and 6. Too few: nearly all in use, more than 7, in
    layers 1 and 2; that more would help takes another training to tell. Holds if all four layers are so; does not hold
    if one certainly is not.
    """
    few = [_layer(study, "distinct heads of layer {}", "distinct_heads", k, 7) for k in EARLY]
    many = [_layer(study, "distinct heads of layer {}", "distinct_heads", k, -INF, 4) for k in LATE]
    return Claim(
        "Uniformly 8 heads are too many for deep layers, and too few for early ones.",
        "Distinct heads of 8, in the baseline: claimed more than 7 in layers 1-2, less than 4 in layers 5-6.",
        (Reading("fluctuations of the heads", (*few, *many)),),
    )


CLAIMS: tuple[Callable[[Study], Claim], ...] = (
    energy_moves_back,
    concentration_is_one_early,
    rank_exceeds_150,
    modes_peak_further_back,
    gating_raises_energy,
    gating_moves_concentration,
    later_modes_carry_more,
    windows_separate_scales,
    modes_are_optimal,
    losses_improve,
    heads_are_misallocated,
)
"""In the order of their numbers."""


def _at(study: Study, quantity: str, layer: int) -> Estimate:
    return study.level("baseline", quantity, {layer: 1.0})


def _layer(study: Study, name: str, quantity: str, layer: int, low: float, high: float = INF) -> Check:
    """A check of one layer of the baseline."""
    return Check(name.format(layer), _at(study, quantity, layer), low, high)


def _change(study: Study, name: str, model: str, quantity: str, layer: int, low: float, high: float = INF) -> Check:
    """A check of the difference of a model to the baseline, in one layer."""
    return Check(name.format(layer), study.change("baseline", model, quantity, {layer: 1.0}), low, high)
