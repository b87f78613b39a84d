"""Objects that export Arrow data."""


class Exporter:
    """An object that exports Arrow data and has no other methods."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Sized(Exporter):
    def __len__(self):
        return len(self.table)
