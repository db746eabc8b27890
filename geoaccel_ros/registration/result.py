"""What a registration returns."""

from dataclasses import dataclass

import numpy as np

# Below this share of overlap a result is doubted.
LEAST_OVERLAP = 0.8


@dataclass(frozen=True)
class Registration:
    """The result of :func:`geoaccel_ros.registration.register`.

    Attributes
    ----------
    T_target_source : ndarray (4, 4) of float64
        Maps the source's coordinates to the target's.
    converged : bool
    reason : str
        Why it stopped, or what went wrong.
    iterations : int
        Of all voxel sizes together.
    rmse : float
        Root mean square residual of the matches kept, metres: of their distances
        (point_to_point) or of their distances along the normals. NaN without matches.
    inliers : int
        Matches kept: within the largest distance and within three sigma.
    kept : float
        Their share of all matches within the largest distance.
    overlap, overlap_before : float
        Share of the source's points with a match within the overlap distance, at the end and at
        the first guess.
    hessian : ndarray (6, 6)
        Of half the sum of squared residuals, for a step [translation, rotation] in the target's
        axes, the rotation about the source's origin.
    degenerate : ndarray (K, 6)
        Unit steps that change no residual, or next to none; empty where all is observed.
    trace : ndarray (L,)
        Root mean square residual at each pose of the finest voxel size, metres, the last one's
        included.
    poses : ndarray (L, 4, 4)
        T_target_source of each of them.
    max_distance, overlap_distance : float
        As used, metres.
    backend : str
        "cpu" or "cuda".
    timings : dict of str to float
        Milliseconds: preprocess (filters), upload (local coordinates and their order; on CUDA the
        copies), tree (with the normals), iterations, total. The target's share is that of its own
        preparation, whichever registration that was made for.
    """

    T_target_source: np.ndarray
    converged: bool
    reason: str
    iterations: int
    rmse: float
    inliers: int
    kept: float
    overlap: float
    overlap_before: float
    hessian: np.ndarray
    degenerate: np.ndarray
    trace: np.ndarray
    poses: np.ndarray
    max_distance: float
    overlap_distance: float
    backend: str
    timings: dict[str, float]

    @property
    def warning(self) -> str:
        """What makes a result doubtful beside its reason; empty if nothing does."""
        if not self.inliers or self.overlap >= LEAST_OVERLAP:
            return ""
        return (
            f"only {self.overlap:.2f} of the source lies within {self.overlap_distance:.3g} m of "
            f"the target, below {LEAST_OVERLAP:g}: the clouds may not be aligned, or overlap little"
        )


class RegistrationWarning(UserWarning):
    """The result of a registration is doubtful."""
