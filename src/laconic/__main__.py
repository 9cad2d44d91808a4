"""``python -m laconic``."""

from laconic.cli.main import entry

if __name__ == "__main__":
    entry()
