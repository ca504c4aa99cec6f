"""Request path: authentication, authorization, limits, dispatch, forwarding to the controller, response cache.

Handlers of single APIs are in `server.handlers`.
"""
