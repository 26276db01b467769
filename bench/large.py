#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Programs with large arrays, for bench/programs.sh
#
#     large.py NAME [SCALE]     one of the functions below; prints a checksum
#
# These are usual operations on arrays of many megabytes: expressions with temporaries,
# copies, sorts, transforms, joins, filters, a training step. SCALE 1 takes from half
# a second to ten seconds. The results don't depend on the allocator.
import sys

import numpy as np


def numbers(n, seed=1):
    """n float64 in [0, 1), the same in each run."""
    return np.random.Generator(np.random.PCG64(seed)).random(n)


def temporaries(scale):
    """Black-Scholes prices: a dozen temporaries of 64 MB."""
    n = int(8_000_000 * scale)
    price, strike = 20 + 80 * numbers(n, 1), 20 + 80 * numbers(n, 2)
    years = 0.1 + numbers(n, 3)
    total = 0.0
    for rate in (0.01, 0.02, 0.03, 0.04):
        spread = 0.3 * np.sqrt(years)
        d1 = (np.log(price / strike) + (rate + 0.045) * years) / spread
        d2 = d1 - spread
        call = price / (1 + np.exp(-1.7 * d1)) \
            - strike * np.exp(-rate * years) / (1 + np.exp(-1.7 * d2))
        total += float(call.sum())
    return total


def arithmetic(scale):
    """Cheap expressions, whose cost is that of memory."""
    n = int(8_000_000 * scale)
    a, b = numbers(n, 1), numbers(n, 2)
    total = 0.0
    for i in range(25):
        c = (a * b + i) - (a + b) * 0.5
        total += float(c[::1000].sum())
    return total


def copies(scale):
    """Copies, conversions and concatenations."""
    n = int(8_000_000 * scale)
    a = numbers(n)
    total = 0.0
    for i in range(12):
        b = a.copy()
        b[i] = i
        c = b.astype(np.float32)
        d = np.concatenate((c[: n // 2], c[n // 2 + i:]))
        total += float(b[::4096].sum()) + float(d[::4096].sum())
    return total


def sorts(scale):
    n = int(6_000_000 * scale)
    a = numbers(n)
    total = 0.0
    for i in range(3):
        b = np.sort(np.roll(a, i))
        order = np.argsort(a[: n // 3], kind="stable")
        total += float(b[n // 3]) + float(order[:1000].sum())
        total += float(np.unique((a * 1000).astype(np.int64)).sum())
    return total


def transforms(scale):
    """FFT convolution, forwards and back, in one and two dimensions."""
    n = 1 << 22
    a = numbers(int(n * scale))
    image = numbers(2048 * int(2048 * scale)).reshape(2048, -1)
    total = 0.0
    for i in range(3):
        f = np.fft.rfft(a + i)
        total += float(np.fft.irfft(f * np.conj(f), a.size)[:1000].sum())
        g = np.fft.fft2(image)
        total += float(np.fft.ifft2(g * np.exp(-abs(g))).real[0].sum())
    return round(total, 3)


def joins(scale):
    import pandas as pd
    n = int(2_000_000 * scale)
    left = pd.DataFrame({"key": (numbers(n, 1) * n / 2).astype(np.int64),
                         "a": numbers(n, 2), "b": numbers(n, 3)})
    right = pd.DataFrame({"key": (numbers(n // 2, 4) * n / 2).astype(np.int64),
                          "c": numbers(n // 2, 5)})
    total = 0.0
    for how in ("inner", "left"):
        both = left.merge(right, on="key", how=how)
        both["d"] = both["a"] * both["c"] + both["b"]
        total += float(both["d"].sum()) + len(both)
    return round(total, 3)


def groups(scale):
    import pandas as pd
    n = int(4_000_000 * scale)
    frame = pd.DataFrame({"key": (numbers(n, 1) * 5000).astype(np.int64),
                          "day": (numbers(n, 2) * 365).astype(np.int32),
                          "x": numbers(n, 3), "y": numbers(n, 4)})
    total = 0.0
    for key in ("key", "day"):
        means = frame.groupby(key)[["x", "y"]].mean()
        frame["z"] = frame["x"] - frame.groupby(key)["x"].transform("mean")
        total += float(means.sum().sum()) + float(frame["z"].abs().sum())
    wide = frame.sort_values(["day", "x"])
    total += float(wide["y"].iloc[::1000].sum())
    return round(total, 3)


def images(scale):
    """A photograph of 24 megapixels: blurred, sharpened, resized, rotated."""
    from PIL import Image, ImageFilter
    wide, high = 6000, int(4000 * scale)
    pixels = (numbers(wide * high * 3) * 255).astype(np.uint8)
    image = Image.fromarray(pixels.reshape(high, wide, 3))
    total = 0
    for i in range(2):
        soft = image.filter(ImageFilter.GaussianBlur(2 + i))
        sharp = Image.blend(image, soft, -0.5)
        small = sharp.resize((wide // 2, high // 2), Image.Resampling.BICUBIC)
        turned = small.transpose(Image.Transpose.ROTATE_90).convert("L")
        floats = np.asarray(sharp, dtype=np.float32) / 255
        grey = floats @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
        total += int(np.asarray(turned)[::97, ::89].sum()) + int(grey.sum())
    return total


def audio(scale):
    """Six minutes of sound: filtered, resampled, a spectrogram."""
    from scipy import signal
    n = int(48000 * 360 * scale)
    sound = numbers(n).astype(np.float32) - np.float32(0.5)
    low = signal.butter(4, 0.2, output="sos")
    total = 0.0
    for i in range(2):
        soft = signal.sosfilt(low, sound * (1 + i))
        half = signal.resample_poly(soft, 1, 2)
        _, _, power = signal.spectrogram(half, nperseg=1024)
        level = 10 * np.log10(power + 1e-12)
        total += float(level[:, ::100].mean())
    return round(total, 3)


def training(scale):
    """Six steps of a small convolutional network."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(2)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.MaxPool2d(4), torch.nn.Flatten(),
        torch.nn.Linear(32 * 16 * 16, 10))
    step = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(int(64 * scale), 3, 64, 64)
    y = torch.arange(x.shape[0]) % 10
    for _ in range(6):
        step.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        step.step()
    return round(float(loss), 3)


def inference(scale):
    """A wide network, and element-wise work on its output."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(2)
    net = torch.nn.Sequential(
        torch.nn.Linear(512, 2048), torch.nn.GELU(),
        torch.nn.Linear(2048, 512), torch.nn.LayerNorm(512))
    x = torch.randn(int(8192 * scale), 512)
    total = 0.0
    with torch.no_grad():
        for _ in range(8):
            y = net(x)
            total += float((y.softmax(1) * x).relu().sum())
    return round(total, 1)


def main():
    name = sys.argv[1]
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    print(name, globals()[name](scale))


if __name__ == "__main__":
    main()
