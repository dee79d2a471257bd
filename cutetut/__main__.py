"""`python -m cutetut`, which is the command `cutetut`."""

from cutetut.cli import command

if __name__ == "__main__":
    command()
