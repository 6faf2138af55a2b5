"""One module a command, with ``make_parser(argv)`` and ``run(options)``; imported only when it is asked for."""
