import Plimsoll
