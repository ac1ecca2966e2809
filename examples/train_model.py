"""Train a small model from a table, kill the training, and go on: the weights are the same.

python examples/train_model.py [directory]

The table has the names that were given in the United States, by year. The model guesses from a
name's letters whether more girls or boys got it. It needs PyTorch: pip install torch
"""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch

from fermion_table import Table

DATA = Path(__file__).resolve().parent / "data" / "babynames"
BATCH_ROWS = 512
EPOCHS = 3
EVERY = 10  # batches between two checkpoints
LETTERS = 26


def letters(names: pa.ChunkedArray) -> pa.Array:
    """How often a name has each letter, and its last letter once more: 52 numbers a name."""
    features = np.zeros((len(names), 2 * LETTERS), np.float32)
    for row, name in enumerate(names.to_pylist()):
        codes = [ord(letter) - ord("a") for letter in name.lower() if "a" <= letter <= "z"]
        np.add.at(features[row], codes, 1)
        features[row, LETTERS + codes[-1]] = 1
    return pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), 2 * LETTERS)


def make_table(path: Path) -> None:
    """One append a year."""
    table = None
    for file in sorted(DATA.glob("yob*.txt.gz"))[:6]:
        options = pa.csv.ReadOptions(column_names=["name", "sex", "births"])
        rows = pa.csv.read_csv(pa.BufferReader(gzip.decompress(file.read_bytes())), options)
        rows = rows.append_column("letters", letters(rows["name"]))
        if table is None:
            table = Table.create(path, rows)
        else:
            table.append(rows)


def train(path: Path, checkpoint: Path) -> None:
    """Train to the end, from the last checkpoint if there is one."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(2 * LETTERS, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    table = Table.open(path)
    reader = table.scan(columns=["letters", "sex"]).training(batch_rows=BATCH_ROWS, seed=17)
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        reader.load_state_dict(state["reader"])
    while reader.state_dict()["epoch"] < EPOCHS:
        for batch in reader:
            girl = pa.compute.equal(batch["sex"], "F").to_numpy(zero_copy_only=False)
            guessed = model(batch.to_torch()["letters"]).squeeze(1)
            wanted = torch.from_numpy(girl.astype(np.float32))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(guessed, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if batch.step % EVERY == 0:
                save(checkpoint, model, optimizer, reader)
    save(checkpoint, model, optimizer, reader)


def save(checkpoint: Path, model: object, optimizer: object, reader: object) -> None:
    """Write a checkpoint; a process that is killed leaves the one before."""
    states = {"model": model, "optimizer": optimizer, "reader": reader}
    draft = checkpoint.with_suffix(".draft")
    torch.save({name: each.state_dict() for name, each in states.items()}, draft)
    os.replace(draft, checkpoint)


def killed_often(path: Path, checkpoint: Path) -> int:
    """Train in processes that are killed soon after they began; return how many there were."""
    kills = 0
    while True:
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        command = [sys.executable, __file__, "--train", str(path), str(checkpoint)]
        with subprocess.Popen(command) as process:
            while process.poll() is None:
                time.sleep(0.01)
                if kills < 3 and checkpoint.exists() and checkpoint.stat().st_mtime_ns > before:
                    time.sleep(0.03)  # some batches more, which will be lost
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    break
        if process.returncode == 0:
            return kills
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"training failed with status {process.returncode}")


def main() -> int:
    """Train with and without interruptions, and compare; return the exit status."""
    if sys.argv[1:2] == ["--train"]:
        train(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    make_table(directory / "names")
    print(f"{Table.open(directory / 'names').count():,} rows")

    train(directory / "names", directory / "whole.pt")
    kills = killed_often(directory / "names", directory / "killed.pt")
    whole, killed = (torch.load(directory / name) for name in ("whole.pt", "killed.pt"))
    same = all(torch.equal(whole["model"][name], killed["model"][name]) for name in whole["model"])
    print(f"killed {kills} times; the weights are {'the same' if same else 'others'}")

    model = torch.nn.Linear(2 * LETTERS, 1)
    model.load_state_dict(killed["model"])
    rows = Table.open(directory / "names").scan(columns=["letters", "sex"])
    right = total = 0
    for batch in rows.training(batch_rows=8_192, shuffle=None):
        girl = pa.compute.equal(batch["sex"], "F").to_numpy(zero_copy_only=False)
        with torch.no_grad():
            guessed = model(batch.to_torch()["letters"]).squeeze(1).numpy() > 0
        right, total = right + int((guessed == girl).sum()), total + len(batch)
    print(f"{right / total:.0%} of the names are guessed right")

    fine = same and kills == 3 and right / total > 0.7
    print("right" if fine else "WRONG")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
