"""The model that a user holds: formulae to unit vectors, and back.

    model = rv.load()                       # the shipped default; or a folder, or "owner/name"
    model.embed(["always x_0 >= 1", ...])   # (B, D)
    model.decode(vectors)                   # formulae for each row of (B, D), the best first

Vectors are computed by NumPy, or by torch if a device is given ("cpu" or "cuda"), in float32 either way;
with precision="int8" by numba in small integers, several times as fast.
A vector does not depend on its batch, and formulae that parse to the same formula have the same vector.
A formula outside the range of the training is embedded with a warning that says which error to expect.

A model on your own traces has a schema: it reads formulae in the traces' names, units and seconds,
and answers in them. `Programs` are taken as lowered by it already, and `model.lowered` is the same
model for formulae over x_0, x_1, ... in standardised units.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from ..errors import FormulaError, MissingDependencyError, RhovecError, RhovecWarning, whole
from ..former import former_arguments
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.fragment import programs_in_fragment
from ..formula.programs import Programs
from ..formula.reader import (
    Formulae,
    FormulaLike,
    as_formulae,
    as_programs,
    is_single,
    without_details,
)
from ..formula.schema import Schema
from ..kernel import (
    BooleanKernel,
    IntegratedKernel,
    Progress,
    StlKernel,
    drop_axes,
    kernel_of_cosine,
)
from ..traces import BaseMeasure, TraceMeasure
from . import store
from .config import EncoderConfig
from .device import torch_device, torch_runtime
from .generate import Generator
from .heads import Kind, make_head
from .inverse import DECIMALS, MAX_THRESHOLD, unit_rows
from .inverter import Inverter
from .layers import ranges
from .runtime import Runtime, own_tensors

if TYPE_CHECKING:
    from .module import FormulaEncoder

Precision = Literal["float32", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
SHIPPED = Path(__file__).parents[1] / "weights"  # a folder per model
DEFAULT = SHIPPED / "default"
MAX_NODES = 2000  # of a formula: attention needs memory for their square
BLOCK = 1 << 20  # sum of squared lengths embedded at once; short formulae count as 64 tokens
# Kernels that a model's config can name as its teacher.
KERNELS: dict[str, type[StlKernel] | type[BooleanKernel] | type[IntegratedKernel]] = {
    "robustness": StlKernel,
    "boolean": BooleanKernel,
    "integrated": IntegratedKernel,
}
EXCESSES = {  # what `outside` looks at, in the words of the warning
    "threshold": "a threshold beyond ±{:g} in the model's units",
    "left bound": "a left bound above {:g} steps",
    "right bound": "a finite right bound above {:g} steps",
    "nodes": "more nodes than {:g}",
    "depth": "a depth above {:g}",
}


@dataclass(frozen=True)
class Finding:
    """Formula `index` has a value beyond the largest in training."""

    index: int
    kind: str  # a key of EXCESSES
    value: float
    largest: float
    error: float | None  # mean error of similarities measured there; None: not measured


class Step(NamedTuple):
    """A formula on the way between two others, and its similarity to both."""

    share: float  # of the angle between the two, 0 to 1
    formula: Formula
    first: float
    second: float


class Model:
    """An encoder, and its decoder if it has one; `load` makes it."""

    def __init__(
        self,
        config: dict[str, Any],
        tensors: Mapping[str, np.ndarray],
        device: str | None = None,
        folder: Path | None = None,
        precision: Precision = "float32",
    ):
        if precision not in PRECISIONS:
            raise RhovecError(f'precision must be "float32" or "int8", not {precision!r}')
        if precision == "int8" and device is not None:
            raise RhovecError("precision int8 is for models without a device; give one of the two")
        self.config = config
        self.folder = folder  # of its decoder, which is read when first used
        self.encoder = EncoderConfig(**config["encoder"])
        self.schema = store.read_schema(config, self.encoder, "the model")
        self._tensors = tensors if folder is None else None  # otherwise they can be read again
        self.device, self.precision = device, precision
        self._encode: Callable[[Programs, Kind], np.ndarray]
        if device is not None:
            self._encode = torch_runtime(self.encoder, tensors, device)
        elif precision == "int8":
            from .int8 import Int8Runtime

            self._encode = Int8Runtime(self.encoder, tensors)
        else:
            self._encode = Runtime(self.encoder, tensors)

    def __repr__(self) -> str:
        where = "NumPy" if self.device is None else f"torch on {self.device}"
        where = self.precision if self.precision != "float32" else where
        return f"Model({self.dimension} dimensions, {self.fingerprint}, {where})"

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    @property
    def sigma2(self) -> float:
        """The bandwidth of the kernel that the model was distilled from."""
        return make_head(self.encoder).sigma2 or float(self.config["teacher"]["sigma2"])

    @property
    def fingerprint(self) -> str:
        """Twelve digits of weights, schema and precision: what vectors are comparable with."""
        digest = store.fingerprint(self.config)
        return (
            digest
            if self.precision == "float32"
            else store.short_digest(f"{digest} {self.precision}")
        )

    @property
    def directions(self) -> Directions:
        """The model with vectors of kind "cosine", for an index or whatever else takes vectors."""
        return Directions(self)

    @property
    def lowered(self) -> Model:
        """The model without its schema: its formulae are over x_0, x_1, ... in standardised units."""
        out = copy(self)
        out.schema = None
        return out

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder that `load` reads and the Hugging Face hub accepts."""
        if self.folder is None:
            raise RhovecError("this model was made of tensors in memory; write it with store.save")
        store.copy(self.folder, folder, self.config)

    def embed(
        self,
        formulae: Formulae | Programs,
        *,
        kind: Kind = "kernel",
        warn: bool = True,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Unit vectors (B, D) float32; of a single formula (D,).

        kind: "kernel": inner products are the kernel K, D is `dimension`. "cosine": inner products
            are the cosine k' of robustness vectors, from which K follows as exp(-(1 - k') / sigma2);
            these are shorter and closer to the exact kernel. Some models have only the former.
        warn: issue a RhovecWarning if formulae are outside the range of the training.
        """
        programs, single = self._read(formulae)
        out = np.empty((len(programs), make_head(self.encoder).dimension(kind)), np.float32)
        done = 0
        for chosen in _blocks(programs):
            out[chosen] = self._encode(programs.select(chosen), kind)
            done += len(chosen)
            if progress:
                progress(done / len(out))
        if warn:
            message = describe(self._outside(programs), len(out))
            if message:
                warnings.warn(message, RhovecWarning, stacklevel=2)
        return out[0] if single else out

    def similarity(self, first: Formulae, second: Formulae, *, warn: bool = True) -> Any:
        """Kernel (A, B) float32 of the formulae; a single formula drops its axis.

        It is computed from vectors of kind "cosine" if the model has them, which is more accurate than
        the inner products of the others.
        """
        a, b = self._formulae(first)[0], self._formulae(second)[0]
        head = make_head(self.encoder)
        vectors = self.embed([*a, *b], kind=head.kind, warn=warn)
        values = np.clip(vectors[: len(a)] @ vectors[len(a) :].T, -1, 1)
        if head.kind == "cosine":
            values = kernel_of_cosine(values, self.sigma2)
        return drop_axes(values, first, second)

    def decode(
        self,
        vectors: Any,
        samples: int = 16,
        refine: bool = True,
        schema: Schema | None = None,
        k: int = 5,
    ) -> Any:
        """Up to k different formulae for a vector (D,) of either kind, the best first; for rows (B, D)
        a list of such lists.

        The decoder proposes its likeliest formula and `samples` others, which are tuned and changed if
        `refine`; the answers are those whose vectors are closest. Vectors need not have length one.
        schema: answer in its channels' names and units; bounds are in sampling steps, and
        `phi.to_text(dt=schema.dt)` prints them in seconds.
        """
        k, samples = whole(k, "k", least=1), whole(samples, "samples", least=0)
        if not isinstance(schema, Schema | None):
            raise RhovecError(f"schema must be a Schema, not {schema!r:.80}")
        rows = self.unit_rows(vectors)
        schema = schema or self.schema
        channels = None if schema is None else len(schema.channels)
        found = self.inverter.decode(np.atleast_2d(rows), samples, refine, channels=channels)
        answers = [[one.formula for one in group[:k]] for group in found]
        if schema is not None:
            answers = [[schema.lift(phi, decimals=DECIMALS) for phi in group] for group in answers]
        return answers[0] if rows.ndim == 1 else answers

    def interpolate(self, first: FormulaLike, second: FormulaLike, steps: int = 7) -> list[Step]:
        """Formulae on the way from one to the other on the sphere: `steps` of them, with both ends.

        The ends are the given formulae, those between them are decoded.
        """
        return interpolated(self, self._formulae([first, second])[0], steps)

    @cached_property
    def inverter(self) -> Inverter:
        """The search behind `decode`; its answers include their similarity to the request."""
        stored = None if self.folder is None else store.read_decoder(self.folder)
        if stored is None:
            raise RhovecError(
                "this model has no decoder; load a model that has one, or train it: rhovec train decoder"
            )
        return Inverter(
            lambda formulae: self.embed(Programs.pack(formulae), warn=False),
            Generator(*stored),
            self.encoder.channels,
            self.largest_threshold,
            self.encoder.points,
        )

    @property
    def largest_threshold(self) -> float:
        """Limit of the thresholds in answers: vectors of formulae with larger ones mean little."""
        known = self.config["range"].get("threshold")
        return MAX_THRESHOLD if known is None else min(known["largest"], MAX_THRESHOLD)

    def unit_rows(self, vectors: Any) -> np.ndarray:
        """Vectors (D,) or (B, D) as float32 of length one and of kind "kernel".

        Those of kind "cosine" go through the head, which makes the others of them.
        """
        head = make_head(self.encoder)
        sizes = {self.dimension, head.dimension(head.kind)}
        wanted = (
            f"this model's have {' or '.join(map(str, sorted(sizes)))}; give vectors of the model that "
            "made them"
        )
        rows = unit_rows(vectors, sizes, wanted).astype(np.float32)
        if rows.shape[-1] == self.dimension:
            return rows
        made = head.numpy_vectors(self._head_tensors, np.atleast_2d(rows))
        return made if rows.ndim == 2 else made[0]

    @cached_property
    def _head_tensors(self) -> Mapping[str, np.ndarray]:
        """The head's, for NumPy."""
        tensors = self._tensors or store.read(self.folder or "")[1]
        return make_head(self.encoder).prepare(own_tensors(tensors, "head."))

    def outside(self, formulae: Formulae | Programs) -> list[Finding]:
        """Values of the formulae that are outside the range of the training."""
        return self._outside(self._read(formulae)[0])

    @former_arguments(n_signals="n_traces")
    def kernel(
        self, n_traces: int | None = None, seed: int = 0
    ) -> StlKernel | BooleanKernel | IntegratedKernel:
        """The teacher: the exact kernel that the model was distilled from, on n_traces traces.

        A model on your own traces has some of these in its folder, 4,096 at most; there are no others.
        """
        teacher = self.config["teacher"]
        name = teacher.get("kernel", "robustness")
        place = self.device if self.device and self.device != "cpu" else "cpu"
        has_traces = store.TRACES in self.config.get("sha256", {})
        own = store.read_traces(self.folder) if has_traces and self.folder else None
        if own is not None:
            n = None if n_traces is None else whole(n_traces, "n_traces", least=1)
            n = None if n is None or n >= len(own) else n
            measure: Any = TraceMeasure(own)
            return OwnKernel(measure, n, self.sigma2, seed, device=place, read=self._read)
        try:
            kind = KERNELS[name]
            measure, sigma2 = BaseMeasure(**teacher["measure"]), float(teacher["sigma2"])
        except (KeyError, TypeError, ValueError):
            what = "a kernel" if name in KERNELS else name
            raise RhovecError(
                f"the model says that it was distilled from {what}, which it cannot make: its config "
                "does not describe it; compare with a kernel of your own"
            ) from None
        return kind(measure, n_traces, sigma2, seed, device=place)

    def module(self, kind: Kind = "kernel") -> FormulaEncoder:
        """The encoder as a torch module, from formulae to tensors with gradients (models/module.py).

        kind: as for `embed`. The module is on the model's device, or on the CPU.
        """
        place = torch_device(self.device or "cpu")
        from .module import FormulaEncoder

        make_head(self.encoder).dimension(kind)  # which refuses a kind that the model does not have
        tensors = self._tensors or store.read(self.folder or "")[1]
        return FormulaEncoder(self.encoder, tensors, kind, self._read).to(place)

    def _formulae(self, formulae: Formulae) -> tuple[list[Formula], bool]:
        """Formulae, and whether a single one was given; text is read as the schema says."""
        if self.schema is None or isinstance(formulae, Programs):
            return as_formulae(formulae)
        single = is_single(formulae)
        items: Any = [formulae] if single else formulae
        if isinstance(items, Iterable):
            plain = map(without_details, items)
            items = [self.schema.parse(one) if isinstance(one, str) else one for one in plain]
        return as_formulae(items)[0], single

    def _read(self, formulae: Formulae | Programs) -> tuple[Programs, bool]:
        """The formulae as the encoder reads them, and whether a single one was given."""
        if self.schema is None or isinstance(formulae, Programs):
            programs, single = as_programs(formulae)
        else:
            found, single = self._formulae(formulae)
            programs_in_fragment(Programs.pack(found))  # an error is in the user's names
            programs = Programs.pack([self.schema.lower(phi) for phi in found])
        return programs_in_fragment(programs), single

    def _outside(self, programs: Programs) -> list[Finding]:
        known = {
            "nodes": {"largest": self.encoder.nodes},
            "right bound": {"largest": self.encoder.points - 1},
            **self.config["range"],
        }
        found = []
        for kind, values in _measures(programs, "depth" in known).items():
            if kind in known:
                largest, error = known[kind]["largest"], known[kind].get("error")
                found += [
                    Finding(i, kind, values[i].item(), largest, error)
                    for i in np.flatnonzero(values > largest).tolist()
                ]
        return found


@dataclass(frozen=True)
class OwnKernel(StlKernel):
    """The kernel on the standardised traces of a model, for formulae as the model reads them."""

    read: Callable[[Any], tuple[Programs, bool]] | None = None

    def check(self, formulae: Formulae) -> Programs:
        assert self.read is not None
        return super().check(self.read(formulae)[0])


@dataclass(frozen=True)
class Directions:
    """Vectors of kind "cosine" of a model: shorter than its others, and closer to the exact kernel."""

    model: Model
    kind: ClassVar[Kind] = "cosine"

    def __post_init__(self) -> None:
        make_head(self.model.encoder).dimension(self.kind)  # which refuses models without

    @property
    def dimension(self) -> int:
        return make_head(self.model.encoder).dimension(self.kind)

    @property
    def fingerprint(self) -> str:
        """Twelve digits: these vectors are comparable neither with others nor with the model's own."""
        return store.short_digest(f"{self.model.fingerprint} {self.kind}")

    @property
    def schema(self) -> Schema | None:
        return self.model.schema

    @property
    def sigma2(self) -> float:
        return self.model.sigma2

    def embed(
        self,
        formulae: Formulae | Programs,
        *,
        warn: bool = True,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """`Model.embed` with kind="cosine"."""
        return self.model.embed(formulae, kind=self.kind, warn=warn, progress=progress)

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> Any:
        """The teacher, as `Model.kernel`."""
        return self.model.kernel(n_traces, seed)


def load(
    path: str | Path | None = None,
    device: str | None = None,
    precision: Precision = "float32",
) -> Model:
    """Load a model: the shipped default, one in a folder, or "owner/name" of the Hugging Face hub.

    The arguments are those of `rhovec.load`.
    """
    folder = _folder(path)
    config, tensors = store.read(folder)
    return Model(config, tensors, device, folder, precision)


def shipped() -> list[str]:
    """Names of the models in this installation."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{store.CONFIG}"))


def interpolated(space: Any, ends: list[Formula], steps: int) -> list[Step]:
    """`interpolate` of any space with `embed`, `similarity` and `decode`."""
    if whole(steps, "steps") < 2:
        raise RhovecError(f"steps must be 2 or more, as both ends count, not {steps}")
    a, b = space.embed(ends).astype(np.float64)
    angle = np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b)) * 2
    shares = np.linspace(0, 1, steps)
    between = shares[1:-1, None]
    # Between two that are almost the same, or opposite, take the straight line.
    straight = min(angle, np.pi - angle) < 1e-4
    if np.pi - angle < 1e-4 and steps > 2:
        raise RhovecError(
            "one formula is the opposite of the other, so no way between them is the shortest; take "
            "other ends"
        )
    way = (1 - between, between) if straight else (
        np.sin((1 - between) * angle), np.sin(between * angle)
    )  # fmt: skip
    formulae = [ends[0], ends[1]]
    if steps > 2:
        formulae[1:1] = [group[0] for group in space.decode(way[0] * a + way[1] * b, k=1)]
    near = space.similarity(formulae, ends, warn=False)
    return [
        Step(share, phi, *values)
        for share, phi, values in zip(shares.tolist(), formulae, near.tolist(), strict=True)
    ]


def describe(findings: Sequence[Finding], count: int) -> str:
    """One line about the findings among `count` formulae; empty if there are none."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    parts = []
    for kind, found in kinds.items():
        largest, error = found[0].largest, found[0].error
        expected = "not measured" if error is None else f"{error:.2g}"
        what = EXCESSES[kind].format(largest)
        parts.append(f"{len(found)} with {what} (mean error {expected})")
    touched = len({finding.index for finding in findings})
    return (
        f"{touched} of {count} formulae outside the range of the model's training: "
        f"{', '.join(parts)}; the exact kernel has no such limits"
        if parts
        else ""
    )


def _folder(path: str | Path | None) -> Path:
    if path is None:
        if not DEFAULT.is_dir():
            raise RhovecError(
                "this installation has no default model; give the folder of one, or install rhovec "
                "again"
            )
        return DEFAULT
    if str(path) in shipped():
        return SHIPPED / path
    if re.fullmatch(r"[\w-]+", str(path)) and not os.path.isdir(path):
        raise RhovecError(
            f"there is no model: {path} is not a folder; shipped models: {', '.join(shipped())}"
        )
    if os.path.isdir(path) or not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", str(path)):
        return Path(path)
    try:
        from huggingface_hub import (  # type: ignore[import-not-found, unused-ignore]
            snapshot_download,
        )
    except ImportError:
        raise MissingDependencyError(
            f"there is no folder {path}; to get it from the Hugging Face hub: "
            "pip install huggingface_hub"
        ) from None
    files = [store.CONFIG, store.WEIGHTS, store.DECODER, store.TRACES, store.CARD]
    try:
        return Path(snapshot_download(str(path), allow_patterns=files))
    except (OSError, ValueError) as error:
        line = str(error).strip().partition("\n")[0]
        raise RhovecError(
            f"there is no folder {path}, and the hub does not have it: {line}"
        ) from None


def _blocks(programs: Programs) -> Iterator[np.ndarray]:
    """Indices of the formulae, sorted by length, in parts that fit into memory."""
    sizes = np.diff(programs.offsets) + 1
    if sizes.max() > MAX_NODES + 1:
        raise FormulaError(
            f"a formula has {sizes.max() - 1:,} nodes; a model reads {MAX_NODES:,} at most"
        )
    order = np.argsort(sizes, kind="stable")
    sizes = sizes[order]
    for begin, end in ranges(sizes * np.maximum(sizes, 64), BLOCK):
        yield order[begin:end]


def _measures(programs: Programs, depth: bool) -> dict[str, np.ndarray]:
    """Values (B,) of the formulae for each key of EXCESSES; depth, which is slow, only on request."""
    operator, left, right, _ = programs.code.T
    timed = (operator == ops.ALWAYS) | (operator == ops.EVENTUALLY) | (operator == ops.UNTIL)
    values = {"threshold": np.abs(programs.thresholds), "left bound": left * timed,
              "right bound": right * timed}  # fmt: skip
    starts = programs.offsets[:-1]
    out = {kind: np.maximum.reduceat(value, starts) for kind, value in values.items()}
    out["nodes"] = np.diff(programs.offsets)
    if depth:
        out["depth"] = programs.depths()
    return out
