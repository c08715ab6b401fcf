"""Message selectors of Jakarta Messaging (JMS), as the specification's section 3.8.1 has them.

A selector looks at the properties of a message, which are the values of an event: strings, bools,
integers (Java's `long`) and floats (Java's `double`), by their names. A property that is missing,
null, a list or a mapping is NULL. What the specification leaves open is decided in `values`, whose
docstring lists it.
"""

from boxmatch.model.dialects.jms.translation import translate

__all__ = ["translate"]
