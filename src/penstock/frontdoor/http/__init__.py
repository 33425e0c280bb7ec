"""The HTTP door: REST, server-sent events, OpenAPI and metrics, in a process of its own.

`app.py` takes a request through guards and the table of `routes.py` to a handler. `publish.py`,
`read.py`, `events.py`, `administration.py` and `operations.py` are the handlers, with their routes
at the end of each file. `messages.py` declares what bodies look like, and `openapi.py` describes
all of it. `server.py` is the connection.
"""
