public import Plimsoll
