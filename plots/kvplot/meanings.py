"""Descriptions of metrics, a line each, for readers of a report."""

# z: a method's answer, a: the exact one, p: exact probabilities, V: the values; Z and A: all scored
# rows stacked.
MEANINGS = {
    "errors.relative_frobenius_error": "||Z - A||_F / ||A||_F over all scored rows together",
    "errors.relative_spectral_error": "||Z - A||_op / ||A||_op over all scored rows together",
    "errors.relative_max_error": "max |Z - A| / max |A| over all scored rows together",
    "errors.relative_l2": "||z - a|| / ||a|| of a row",
    "errors.relative_l2_posclamp_mean": "mean of ||z - a|| / ||max(a, 1e-8)||, as BalanceKV's code",
    "errors.relative_rms": "root of the mean of (||z - a|| / ||a||)^2",
    "errors.relative_l1": "||z - a||_1 / ||a||_1 of a row",
    "errors.epsilon_spectral": "||z - a|| / (||p||_2 ||V||_op) of a row: the epsilon of SubGen "
    "eq. 3",
    "errors.epsilon_frobenius": "||z - a|| / (||p||_2 ||V||_F) of a row: the epsilon of BalanceKV "
    "eq. 2",
    "errors.numerator_error": "error of the numerator over ||e^x||_2 ||V||_op of a row, SubGen "
    "eq. 6",
    "errors.normalizer_error": "|tau - Z| / Z of a row: error of the softmax sum, SubGen eq. 5",
    "errors.cosine_distance": "1 - cosine of the angle between z and a",
    "errors.kl_divergence": "KL divergence of the method's attention probabilities from the exact "
    "ones",
    "errors.score_error": "root mean square error of the logits of the held keys, as a codec gives "
    "them back",
    "errors.key_error": "relative Frobenius error of the held keys, as a codec gives them back",
    "errors.value_error": "relative Frobenius error of the held values, as a codec gives them back",
    "mass.kept": "exact attention mass on the tokens that are kept",
    "mass.numerator": "estimated sum of weights of the numerator over the exact one",
    "mass.denominator": "estimated softmax sum over the exact one",
    "memory.fraction": "bytes held at the peak over the bytes of the exact cache",
    "traffic.fraction": "bytes that a row reads over those that exact attention reads",
}
OF_ROWS = {
    "mean": "mean over rows and query heads",
    "median": "median over rows and query heads",
    "p90": "90th percentile over rows and query heads",
    "p99": "99th percentile over rows and query heads",
    "max": "largest of any row and query head",
    "last": "of the last row",
}


def meaning_of(path: str) -> str:
    """The definition of a number of a cell, "" if there is none here."""
    if path in MEANINGS:
        return MEANINGS[path]
    base, _, of_rows = path.rpartition(".")
    if base in MEANINGS and of_rows in OF_ROWS:
        return f"{MEANINGS[base]}; {OF_ROWS[of_rows]}"
    return ""
