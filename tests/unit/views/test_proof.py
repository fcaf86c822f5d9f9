"""A proof on a screen: the outcome in a sentence, what it rests on, and nothing wider than the screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whyidle.model.findings import Forecast
from whyidle.model.proof import CaptureCounts, Findings, Proof, ProofOutcome, Timing
from whyidle.views.proof import render_proof

NOTHING = Findings(count=0, examples=())
PROOF = Proof(
    old="/home/somebody/projects/segmentation/targets.py:outline_maps",
    new="/home/somebody/projects/segmentation/fast.py:outline_maps",
    rtol=1e-5,
    atol=1e-8,
    capture=CaptureCounts(
        calls=1200,
        mean_wall_ns=7.3e6,
        mean_cpu_ns=3.6e6,
        kept=400,
        checked=400,
        raised=2,
        refused={"arguments: PicklingError: Can't pickle <function <lambda> at 0x7f>": 3},
        drew_random=400,
        changed_arguments=7,
        effects={"reads files": 400},
    ),
    not_reproduced=NOTHING,
    different=NOTHING,
    not_comparable=NOTHING,
    timing=Timing(
        processes=4,
        rounds=12,
        old_ns=3.65e6,
        new_ns=0.23e6,
        speedup=15.9,
        low=14.6,
        high=17.3,
        old_wall_ns=7.1e6,
        new_wall_ns=0.3e6,
        old_cpu_ns=3.6e6,
        new_cpu_ns=0.2e6,
    ),
    forecast=Forecast(speedup=1.82, low=1.71, high=1.94, basis="event simulation"),
    forecast_missing=None,
)
FEW = Findings(count=3, examples=("call 7: result[0][3, 5] is 0.25, expected 0.5",))


@pytest.mark.parametrize(
    ("proof", "outcome", "said"),
    [
        (PROOF, ProofOutcome.FASTER, "15.9x as fast. The training would run 1.82x"),
        (
            replace(PROOF, timing=replace(PROOF.timing, low=0.98)),
            ProofOutcome.NOT_FASTER,
            "but not faster",
        ),
        (
            replace(PROOF, different=FEW, timing=None, forecast=None),
            ProofOutcome.DIFFERENT,
            "3 of 400 captured calls differ",
        ),
        (
            replace(PROOF, not_reproduced=FEW),
            ProofOutcome.UNDECIDED,
            "does not give again what it gave",
        ),
        (
            replace(PROOF, not_comparable=FEW, forecast=None, forecast_missing="few steps"),
            ProofOutcome.UNDECIDED,
            "nothing is known of how to compare",
        ),
    ],
)
def test_outcome_leads_and_all_fits(proof: Proof, outcome: ProofOutcome, said: str) -> None:
    """The outcome in the first lines; what was found and what could not be kept below; 80 columns."""
    text = render_proof(proof, color=False)

    flat = " ".join(text.replace("▌", "").split())
    assert proof.outcome is outcome
    assert proof.to_json()["outcome"] == outcome.value
    assert said in flat
    assert "3 calls not kept: arguments: PicklingError" in flat
    assert ("call 7: result[0][3, 5]" in flat) == (
        FEW in (proof.different, proof.not_reproduced, proof.not_comparable)
    )
    assert max(map(len, text.splitlines())) <= 80


def test_proof_in_ascii() -> None:
    """Where nothing else can be shown."""
    assert render_proof(PROOF, color=False, blocks=False).isascii()
