from ottla.api._received_py import Record as Record
from ottla.api._received_py import records_of as records_of
