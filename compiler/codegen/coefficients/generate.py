"""Polynomial coefficients of vector_math.cc and vector_math_f64.cc, and how far the rounded polynomials are off.

Needs mpmath. Each fit is one of weighted least squares at Chebyshev nodes in high precision (within a small factor of
minimax); it rounds the coefficients one after the other, lowest first, and fits the rest again each time.
"""

import mpmath as mp

mp.mp.prec = 240


def rounded(value, bits):
    return +mp.mpf(value) if bits is None else mp.ldexp(mp.nint(mp.ldexp(value, bits - mp.frexp(value)[1])), mp.frexp(value)[1] - bits)


def least_squares(target, weight, nodes, first, count):
    """Coefficients of x^first, x^(first+1), ... that come nearest to `target` at the nodes."""
    matrix = mp.matrix(len(nodes), count)
    right = mp.matrix(len(nodes), 1)
    for i, x in enumerate(nodes):
        for j in range(count):
            matrix[i, j] = weight[i] * x ** (first + j)
        right[i] = weight[i] * target[i]
    return mp.lu_solve(matrix, right)


def fit(name, f, low, high, degree, bits, whole, truth):
    """f ~ p on [low, high]; `whole(x, p(x))` against `truth(x)` is the error that is kept small and printed."""
    low, high = mp.mpf(low), mp.mpf(high)
    count = 6 * (degree + 1)
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    values = [f(x) for x in nodes]
    # Nodes crowd at the ends, as in a Chebyshev fit; the weight turns an error of p into one of the whole.
    weight = [abs((whole(x, v + mp.mpf(10) ** -20) - whole(x, v)) / truth(x)) * mp.mpf(10) ** 20 for x, v in zip(nodes, values)]
    done = []
    for k in range(degree + 1):
        rest = [v - (mp.polyval(done[::-1], x) if done else 0) for x, v in zip(nodes, values)]
        done.append(rounded(least_squares(rest, weight, nodes, k, degree + 1 - k)[0], bits))
    worst = mp.mpf(0)
    for i in range(2001):
        x = low + (high - low) * i / 2000
        if x != 0:
            worst = max(worst, abs(whole(x, mp.polyval(done[::-1], x)) / truth(x) - 1))
    print(f"{name}: relative error 2^{float(mp.log(worst, 2)):.1f}")
    for k, c in enumerate(done):
        print(f"  c{k} = {hex_of(c)}")


def hex_of(value):
    return float(value).hex()


def parts(name, value, *bits):
    print(name, *(hex_of(p) for p in split(value, bits)))


def split(value, bits):
    out = []
    for b in bits:
        out.append(rounded(value, b))
        value -= out[-1]
    return out


def both(bits, exp_degree, tanh_degree, erf_degree, trig_degree):
    half = mp.log(2) / 2 * mp.mpf("1.001")
    tail = lambda x: (mp.expm1(x) - x) / x**2
    fit("exp, expm1: (e^r - 1 - r) / r^2", tail, -half, half, exp_degree, bits, lambda x, p: x + x * x * p, mp.expm1)
    root = mp.sqrt
    odd = lambda f: lambda x: (f(root(x)) / root(x) - 1) / x
    top = (mp.pi / 4 * mp.mpf("1.01"))**2
    tiny = mp.mpf(10)**-10
    fit("tanh: (tanh(r) / r - 1) / r^2 in r^2, |r| <= 0.6", odd(mp.tanh), tiny, "0.36", tanh_degree, bits,
        lambda x, p: root(x) * (1 + x * p), lambda x: mp.tanh(root(x)))
    fit("erf: erf(r) / r - 1 in r^2, |r| <= 1", lambda x: mp.erf(root(x)) / root(x) - 1, tiny, 1, erf_degree, bits,
        lambda x, p: root(x) * (1 + p), lambda x: mp.erf(root(x)))
    fit("sin: (sin(r) / r - 1) / r^2 in r^2", odd(mp.sin), tiny, top, trig_degree, bits,
        lambda x, p: root(x) * (1 + x * p), lambda x: mp.sin(root(x)))
    fit("cos: (cos(r) - 1 + r^2 / 2) / r^4 in r^2", lambda x: (mp.cos(root(x)) - 1 + x / 2) / x**2, tiny, top, trig_degree,
        bits, lambda x, p: 1 - x / 2 + x * x * p, lambda x: mp.cos(root(x)))


print("== float32")
both(24, 5, 5, 8, 3)
fit("log: (log(1 + f) - f + f^2 / 2) / f^3", lambda x: (mp.log1p(x) - x + x * x / 2) / x**3, mp.sqrt("0.5") - 1, mp.sqrt(2) - 1, 8,
    24, lambda x, p: x - x * x / 2 + x**3 * p, mp.log1p)
fit("erf: -log(erfc(t)) in t, 0.95 <= t <= 3.95", lambda x: -mp.log(mp.erfc(x)), "0.95", "3.95", 9, 24,
    lambda x, p: 1 - mp.exp(-p), mp.erf)
parts("ln 2:", mp.log(2), 15, 24)
parts("log2(e):", 1 / mp.log(2), 24)
parts("pi / 2:", mp.pi / 2, 24, 24, 24)
parts("2 / pi:", 2 / mp.pi, 24)

print("== float64")
both(53, 11, 11, 16, 6)
squared = lambda f: lambda x: f(mp.sqrt(x)) / mp.sqrt(x)
reach = mp.mpf("0.1725")**2
fit("log: (2 atanh(s) / s - 2) / s^2 in s^2", lambda x: (squared(lambda s: 2 * mp.atanh(s))(x) - 2) / x, mp.mpf(10)**-12, reach, 7, 53,
    lambda x, p: 2 + x * p, squared(lambda s: 2 * mp.atanh(s)))
point = lambda q: 2 * (1 + q) / (1 - q)
fit("erf: erfc(t) e^(t^2) in q = (t - 2) / (t + 2), 1 <= t <= 6", lambda q: mp.exp(point(q)**2) * mp.erfc(point(q)), "-0.334", "0.501", 20, 53,
    lambda q, p: p, lambda q: mp.exp(point(q)**2) * mp.erfc(point(q)))
fit("pow32: 2 atanh(s) / s / ln 2 in s^2", squared(lambda s: 2 * mp.atanh(s) / mp.log(2)), mp.mpf(10)**-12, reach, 6, 53,
    lambda x, p: p, squared(lambda s: 2 * mp.atanh(s) / mp.log(2)))
fit("pow32: 2^f", lambda x: mp.mpf(2)**x, "-0.5", "0.5", 8, 53, lambda x, p: p, lambda x: mp.mpf(2)**x)
parts("ln 2:", mp.log(2), 42, 53)
parts("log2(e):", 1 / mp.log(2), 53)
parts("pi / 2:", mp.pi / 2, 53, 53, 53)
parts("2 / pi:", 2 / mp.pi, 53)

mp.mp.prec = 1600
value, words = 2 / mp.pi, []
for _ in range(38):
    value = mp.ldexp(value, 32)
    words.append(int(mp.floor(value)))
    value -= words[-1]
print("2 / pi, words of 32 bits after the point:", ", ".join(f"0x{w:08x}" for w in words))
