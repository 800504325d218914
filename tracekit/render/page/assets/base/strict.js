"use strict"; // all scripts become one, and this makes all of it strict
