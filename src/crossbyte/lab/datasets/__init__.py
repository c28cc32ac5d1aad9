"""Read or generate the collections that systems are compared on: a training part, a query part, labels."""
