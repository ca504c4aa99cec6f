from ottla.api._messages_py import Deliveries as Deliveries
from ottla.api._messages_py import Delivery as Delivery
from ottla.api._messages_py import Record as Record
from ottla.api._messages_py import records_of as records_of
