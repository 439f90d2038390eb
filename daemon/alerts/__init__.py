"""Messages to chats and pagers.

`message.py` is what is said and `text.py` how; `senders/` has one module a service, pure; `post.py` is the way out.
`sinks.py` makes a sender of the settings.
"""
