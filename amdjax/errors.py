"""Error classes raised by amdjax; each message says what to do instead."""

from amdjax.core.errors import ConcretizationTypeError as ConcretizationTypeError
from amdjax.core.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from amdjax.core.errors import JAXIndexError as JAXIndexError
from amdjax.core.errors import JaxprTypeError as JaxprTypeError
from amdjax.core.errors import JaxRuntimeError as JaxRuntimeError
from amdjax.core.errors import JAXTypeError as JAXTypeError
from amdjax.core.errors import KeyReuseError as KeyReuseError
from amdjax.core.errors import NonConcreteBooleanIndexError as NonConcreteBooleanIndexError
from amdjax.core.errors import TracerArrayConversionError as TracerArrayConversionError
from amdjax.core.errors import TracerBoolConversionError as TracerBoolConversionError
from amdjax.core.errors import TracerIntegerConversionError as TracerIntegerConversionError
from amdjax.core.errors import UnexpectedTracerError as UnexpectedTracerError
