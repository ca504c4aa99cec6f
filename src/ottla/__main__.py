"""`python -m ottla`: the same as the command `ottla`."""

from ottla.app.main import main

if __name__ == "__main__":
    main()
