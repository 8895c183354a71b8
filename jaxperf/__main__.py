"""`python -m jaxperf`, and the console script."""

from jaxperf.cli.interrupts import interruptible


def main() -> None:
    """Run the command line; nothing but its guard is imported before Ctrl-C is watched for."""
    with interruptible():
        from jaxperf.cli.main import main as run

        run()


if __name__ == "__main__":
    main()
